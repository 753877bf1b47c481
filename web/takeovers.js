// What changed hands in the last minutes, as timelines made of the history. The demonstration's page shows it in its own way.

import { byId, duration, el, keyed, plural, setText } from './dom.js';
import { link } from './pages.js';
import { forget, show, storeClock, timeline } from './timeline.js';

const wide = 300_000; // ms
const most = 4; // subjects
const mostLanes = 6;
const titles = { role: 'Role', job: 'Job', shard: 'Shard', monitor: 'Monitor' };

const subjects = new Map(); // "part subject" → its events, oldest first

export function fill(events) {
  subjects.clear();
  for (const e of events) add(e);
}

export function add(e) {
  const moved = e.part === 'monitor' || (e.from || e.to) && e.from !== e.to;
  if (!titles[e.part] || !moved) return;
  const key = `${e.part} ${e.subject}`;
  const list = subjects.get(key) || [];
  subjects.delete(key); // the latest are last
  subjects.set(key, [...list.slice(-50), { ...e, time: new Date(e.at).getTime() }]);
  if (subjects.size > 1000) subjects.delete(subjects.keys().next().value);
}

// update is called once a second, with the server's state.
export function update({ parts }) {
  const since = storeClock() - wide;
  for (const [key, events] of subjects) if (events[events.length - 1].time < since) subjects.delete(key);
  // What is held for the first time is not a takeover.
  const moved = [...subjects.values()].filter((events) => events.some((e) => e.time >= since && (e.from || e.duration_ms > 0 || e.part === 'monitor'))).reverse();
  byId('takeovers').hidden = moved.length === 0 || parts.includes('demo');
  setText(byId('takeovers-summary'), moved.length > most ? `the latest ${most} of ${plural(moved.length, 'thing', 'things')}` : '');
  const list = byId('takeovers-list');
  for (const [key, row] of list.rows || []) if (!moved.slice(0, most).some((events) => keyOf(events) === key)) forget(row.line);
  keyed(list, moved.slice(0, most), keyOf, create, (row, events) => show(row.line, picture(events)));
}

const keyOf = ([e]) => `${e.part} ${e.subject}`;

function create([e]) {
  const line = timeline(wide, storeClock);
  const name = el('a', 'name', e.subject);
  name.href = link('history', e.part, ...e.subject.split('/'));
  return { line, element: el('li', 'timed', el('div', '', el('h4', 'sub', titles[e.part]), name), el('div', '', line.element)) };
}

const nameOf = (label) => label.slice(0, label.lastIndexOf('/') < 0 ? undefined : label.lastIndexOf('/'));

// picture follows who holds it from event to event. What was before the first of them is known from whom it took it.
function picture(events) {
  const lanes = new Map();
  const marks = [];
  const gaps = [];
  const before = -wide;
  const lane = (name) => lanes.get(name) || lanes.set(name, { name, down: [], spans: [] }).get(name);
  const close = (name, at) => {
    const l = lane(name);
    const open = l.spans.find((s) => s.to === null);
    if (open) open.to = at;
    else if (l.spans.length === 0) l.spans.push({ from: storeClock() + before, to: at });
  };
  for (const e of events) {
    const source = e.part === 'monitor';
    const silent = source && ['silent', 'failed', 'overrun'].includes(e.reason);
    if (source && !silent && e.reason !== 'ABATED') continue;
    const from = source ? (silent ? 'heartbeats' : '') : nameOf(e.from);
    const to = source ? (silent ? '' : 'heartbeats') : nameOf(e.to);
    const free = to ? e.time - e.duration_ms : e.time; // since then nobody has it
    if (from) {
      close(from, free);
      marks.push({ lane: from, at: free, text: e.reason });
    }
    if (to) {
      lane(to).spans.push({ from: e.time, to: null });
      if (e.duration_ms > 0) gaps.push({ from: free, to: e.time, text: duration(e.duration_ms) });
    }
  }
  const shown = [...lanes.values()].slice(-mostLanes);
  const now = shown.filter((l) => l.spans.some((s) => s.to === null)).map((l) => l.name);
  return { lanes: shown, marks, gaps, label: `${titles[events[0].part]} ${events[0].subject}: now ${now.join(', ') || 'nobody'}; ${plural(gaps.length, 'gap', 'gaps')}: ${gaps.map((g) => g.text).join(', ') || 'none'}.` };
}
