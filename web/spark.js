// A line of bars, the newest on the right: in which of its last intervals a source has beaten, or how runs of a job have ended.

const space = 'http://www.w3.org/2000/svg';
const gap = 4; // from one bar to the next
export const high = 16;

// spark makes the picture, of so many bars.
export function spark(most) {
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('viewBox', `0 0 ${most * gap} ${high}`);
  svg.setAttribute('preserveAspectRatio', 'xMinYMid');
  svg.setAttribute('role', 'img');
  svg.most = most;
  return svg;
}

// drawBars shows bars with a class and a height, up to high; the first is the newest.
export function drawBars(svg, label, bars) {
  svg.setAttribute('aria-label', label);
  svg.replaceChildren(...bars.map(({ className, tall }, i) => {
    const bar = document.createElementNS(space, 'rect');
    bar.setAttribute('class', className);
    bar.setAttribute('x', String((svg.most - 1 - i) * gap));
    bar.setAttribute('y', String(high - tall));
    bar.setAttribute('width', '3');
    bar.setAttribute('height', String(tall));
    bar.setAttribute('rx', '1');
    return bar;
  }));
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
