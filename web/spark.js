// A line of bars: in which of its last intervals a source has beaten, the newest
// on the right.

const space = 'http://www.w3.org/2000/svg';
const gap = 4; // from one bar to the next
const high = 16;

// spark makes the picture, of so many intervals.
export function spark(most) {
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('viewBox', `0 0 ${most * gap} ${high}`);
  svg.setAttribute('role', 'img');
  svg.most = most;
  return svg;
}

// drawSpark shows a source's beats; what lies before the first of them is empty.
export function drawSpark(svg, { recent = '', beats = 0 }) {
  let slots = beats > 0 ? recent.slice(0, svg.most) : '';
  if (beats <= recent.length && slots.includes('1')) slots = slots.replace(/0+$/, '');
  if (svg.shown === slots) return;
  svg.shown = slots;
  const heard = [...slots].filter((c) => c === '1').length;
  svg.setAttribute('aria-label', slots ? `Heartbeats arrived in ${heard} of the last ${slots.length} intervals` : 'No heartbeats yet');
  svg.replaceChildren(...[...slots].map((c, i) => {
    const bar = document.createElementNS(space, 'rect');
    const tall = c === '1' ? high : 3;
    bar.setAttribute('class', c === '1' ? 'heard' : i === 0 ? 'open' : 'missed');
    bar.setAttribute('x', String((svg.most - 1 - i) * gap));
    bar.setAttribute('y', String(high - tall));
    bar.setAttribute('width', '3');
    bar.setAttribute('height', String(tall));
    bar.setAttribute('rx', '1');
    return bar;
  }));
}
