// A line of bars, the newest on the right: in which of its last intervals a source has beaten, or how runs of a job have ended.

import { svg } from './dom.js';

const gap = 4; // from one bar to the next
export const high = 16;

// spark makes the picture, of so many bars.
export function spark(most) {
  const picture = svg('svg', { class: 'spark', viewBox: `0 0 ${most * gap} ${high}`, preserveAspectRatio: 'xMinYMid', role: 'img' });
  picture.most = most;
  return picture;
}

// drawBars shows bars with a class and a height, up to high; the first is the newest.
export function drawBars(picture, label, bars) {
  picture.setAttribute('aria-label', label);
  picture.replaceChildren(...bars.map(({ className, tall }, i) => (
    svg('rect', { class: className, x: (picture.most - 1 - i) * gap, y: high - tall, width: 3, height: tall, rx: 1 }))));
}

// drawSpark shows a source's beats; what lies before the first of them is empty.
export function drawSpark(svg, { recent = '', beats = 0 }) {
  let slots = beats > 0 ? recent.slice(0, svg.most) : '';
  if (beats <= recent.length && slots.includes('1')) slots = slots.replace(/0+$/, '');
  if (svg.shown === slots) return;
  svg.shown = slots;
  const heard = [...slots].filter((c) => c === '1').length;
  drawBars(svg, slots ? `Heartbeats arrived in ${heard} of the last ${slots.length} intervals` : 'No heartbeats yet',
    [...slots].map((c, i) => (c === '1' ? { className: 'heard', tall: high } : { className: i === 0 ? 'open' : 'missed', tall: 3 })));
}
