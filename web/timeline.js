// A timeline that moves: a lane for each who can be at work, a bar while it is, and what happened to it. Now is where bars end, on the right.

import { svg } from './dom.js';

const names = 78; // px on the left, for the names of the lanes
const edge = 52; // px on the right of now, for words
const top = 18; // px for words
const laneHigh = 22;
const barHigh = 14;
const tight = 48; // px that words above the lanes need
const ahead = 60_000; // ms that are drawn beyond now, so that a bar that goes on needs no drawing
const still = window.matchMedia('(prefers-reduced-motion: reduce)');
const rest = 5000; // ms between two steps where nothing should move

const all = new Set();
let asked = 0; // of the browser: the next frame

// timeline makes one that shows so many ms. clock tells the time, in ms since 1970, of whoever noted what is shown.
export function timeline(wide, clock) {
  const element = svg('svg', { class: 'timeline', role: 'img' });
  const t = { element, wide, clock, model: null, shown: '', drawn: 0, moved: 0, scale: 1, moving: [] };
  new ResizeObserver(() => { if (t.model) draw(t); }).observe(element);
  all.add(t);
  asked = asked || requestAnimationFrame(move);
  return t;
}

// remoteClock makes a function that returns the time of another clock, in ms since 1970. Its sync takes the time at which that
// clock's message was sent: the one that came fastest knows best, until a clock is set.
export function remoteClock() {
  let offset = null; // how far it is ahead of this one
  const clock = () => Date.now() + (offset || 0);
  clock.sync = (sent) => {
    const seen = sent - Date.now();
    offset = offset === null || Math.abs(seen - offset) > 2000 ? seen : Math.max(seen, offset);
  };
  return clock;
}

export const storeClock = remoteClock();

// show draws what there is:
//   label   in words, for who does not see it
//   lanes   {name, spans: [{from, to}], down: [{from, to, kind}]}; to is null while it goes on
//   marks   {lane, at, text}: something was done
//   gaps    {from, to, text}: nobody was at work
export function show(t, model) {
  t.model = model;
  const text = JSON.stringify(model);
  if (text === t.shown && t.clock() - t.drawn < ahead / 2) return;
  t.shown = text;
  draw(t);
}

function draw(t) {
  const { lanes, marks, gaps, label } = t.model;
  const width = t.element.clientWidth;
  if (!width) return;
  const high = top + lanes.length * laneHigh;
  t.drawn = t.clock();
  const now = width - edge;
  t.scale = (now - names) / t.wide;
  const x = (at) => now + Math.max(-t.wide - ahead, Math.min(ahead, at - t.drawn)) * t.scale;
  const y = (i) => top + i * laneHigh + (laneHigh - barHigh) / 2;
  const rowOf = (name) => lanes.findIndex((l) => l.name === name);
  const bar = (i, className, from, to, high = barHigh, at = y(i)) => svg('rect', {
    class: className, x: x(from).toFixed(1), y: at, width: Math.max(1.5, x(to) - x(from)).toFixed(1), height: high, rx: Math.min(3, high / 2),
  });
  const bars = [];
  const words = [];
  lanes.forEach((l, i) => {
    bars.push(bar(i, 'lane', t.drawn - t.wide - ahead, t.drawn + ahead, 2, y(i) + barHigh - 2));
    for (const d of l.down) bars.push(bar(i, d.kind, d.from, d.to === null ? t.drawn + ahead : d.to, 4, y(i) + barHigh - 4));
    for (const s of l.spans) bars.push(bar(i, 'work', s.from, s.to === null ? t.drawn + ahead : s.to));
  });
  gaps.forEach((g, i) => {
    words.push(svg('line', { class: 'gap', x1: x(g.from), x2: x(g.to), y1: top - 3, y2: top - 3 }));
    if (i + 1 === gaps.length || x(gaps[i + 1].to) - x(g.to) > tight) words.push(svg('text', { class: 'gap', x: x(g.to) + 4, y: top - 5 }, g.text));
  });
  for (const m of marks) {
    const i = rowOf(m.lane);
    if (i < 0) continue;
    words.push(svg('line', { class: 'mark', x1: x(m.at), x2: x(m.at), y1: y(i) - 3, y2: y(i) + barHigh }));
    words.push(svg('text', { class: 'mark', x: x(m.at) + 4, y: y(i) + barHigh - 5 }, m.text)); // nothing is at work there now
  }
  // What leaves on the left does not run over the names, and no bar goes beyond now.
  const frames = [[bars, now], [words, width]].map(([list, end]) => {
    const frame = svg('svg', { x: names, width: end - names, height: high, viewBox: `${names} 0 ${end - names} ${high}` });
    const moving = svg('g', {});
    moving.append(...list);
    frame.append(moving);
    return frame;
  });
  t.moving = frames.map((frame) => frame.firstChild);
  t.element.setAttribute('height', high);
  t.element.setAttribute('aria-label', label);
  t.element.replaceChildren(...frames, ...lanes.map((l, i) => svg('text', { x: 0, y: y(i) + barHigh - 3, class: 'who' }, l.name)));
  t.moved = 0;
}

// move lets everything that is seen pass by: one attribute of each timeline.
function move() {
  asked = all.size ? requestAnimationFrame(move) : 0;
  const pause = still.matches ? rest : 40;
  for (const t of all) {
    const gone = t.clock() - t.drawn;
    if (!t.model || gone - t.moved < pause) continue;
    t.moved = gone;
    if (!t.element.checkVisibility()) continue;
    for (const g of t.moving) g.setAttribute('transform', `translate(${(-gone * t.scale).toFixed(2)} 0)`);
  }
}

// forget stops one that is no more on the page.
export const forget = (t) => all.delete(t);
