// The list of the monitor's sources: filtered, page by page, with times that go on
// by themselves.

import { byId, coarse, count, el, keyed, plural, setText, setTitle } from './dom.js';
import { leftOf, openSource, why } from './source.js';
import { drawSpark, spark } from './spark.js';
import { ask } from './stream.js';

const page = 25; // sources that are shown
const every = 2000; // ms between two looks, or ten times as long as one takes
const bars = 32;

const list = byId('sources-list');
const event = byId('sources-event');
const state = byId('sources-state');
const text = byId('sources-text');
const back = byId('sources-back');
const more = byId('sources-more');

let cursors = []; // where the pages began that lead to this one
let following = null; // where the next one begins
let failed = '';
let next = 0; // timer of the next look
let turn = 0; // counts the looks, so that an answer that comes late is not shown
let running = false;
let limits = new Map(); // how long sources of an event may be quiet, in ms
let resting = new Set(); // events that are paused
let total = 0;

// update tells of the event names, and how many sources there are.
export function update(events, sources) {
  limits = new Map(events.filter((e) => e.interval_ms).map((e) => [e.check, e.interval_ms * e.missed + (e.grace_ms || 0)]));
  resting = new Set(events.filter((e) => e.paused).map((e) => e.check));
  total = sources;
  const names = events.filter((e) => !e.removed).map((e) => e.check);
  if (event.shown !== names.join('\n')) {
    event.shown = names.join('\n');
    const chosen = event.value;
    const all = el('option', '', 'All checks');
    all.value = '';
    event.replaceChildren(all, ...names.map((n) => {
      const option = el('option', '', n);
      option.value = n;
      return option;
    }));
    event.value = names.includes(chosen) ? chosen : '';
  }
  if (running) return;
  running = true;
  look();
}

export function stop() {
  running = false;
  turn++;
  clearTimeout(next);
}

// choose shows the sources of an event that are in a state.
export function choose(ofEvent, inState) {
  event.value = ofEvent;
  state.value = inState;
  text.value = '';
  anew();
  byId('sources-title').scrollIntoView({ block: 'start' });
  state.focus({ preventScroll: true });
}

function anew(after = 0) {
  cursors = [];
  again(after);
}

function again(after = 0) {
  turn++;
  clearTimeout(next);
  next = setTimeout(look, after);
}

for (const select of [event, state]) select.addEventListener('change', () => anew());
text.addEventListener('input', () => anew(200));
more.addEventListener('click', () => { if (following) { cursors.push(following); again(); } });
back.addEventListener('click', () => { cursors.pop(); again(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden && running) again(); });

// look reads the page that is shown, and again after a while.
export async function look() {
  clearTimeout(next);
  const mine = ++turn;
  const began = performance.now();
  if (!document.hidden) {
    try {
      const query = new URLSearchParams({ limit: page });
      for (const [name, value] of [['check', event.value], ['state', state.value], ['contains', text.value.trim()]]) if (value) query.set(name, value);
      const at = cursors[cursors.length - 1];
      if (at) query.set('after', at);
      const answer = await (await ask(`/v1/sources?${query}`)).json();
      if (mine !== turn) return;
      following = answer.next || null;
      failed = '';
      draw(answer.sources, performance.now());
    } catch (err) {
      if (mine !== turn) return;
      failed = err.message;
    }
    say();
  }
  if (running) next = setTimeout(look, Math.max(every, 10 * (performance.now() - began)));
}

function say() {
  const shown = list.childElementCount;
  const wanted = Boolean(event.value || state.value || text.value.trim());
  let words = wanted ? `${count(shown)}${following || cursors.length ? ' shown' : ' found'}` : plural(total, 'source', 'sources');
  if (cursors.length) words += `, page ${cursors.length + 1}`;
  else if (following && !wanted) words += `, the first ${shown} shown`;
  if (failed) words += `; they could not be read: ${failed}`;
  setText(byId('sources-summary'), words);
  list.hidden = shown === 0;
  const none = byId('sources-empty');
  none.hidden = shown > 0;
  if (following) setText(none, 'No match so far; there are more to search.');
  else setText(none, wanted || cursors.length ? 'No such source.' : 'No source has sent a heartbeat, and none is declared.');
  back.hidden = cursors.length === 0;
  more.hidden = !following;
}

function draw(sources, received) {
  keyed(list, sources, (s) => JSON.stringify([s.check, s.source]), create, (row, s) => fill(row, s, received));
  tick();
}

function create() {
  const name = el('button', 'link name');
  name.type = 'button';
  const of = el('span', 'sub name');
  const how = el('strong', 'state');
  const why = el('span', 'sub');
  const last = el('span');
  const beats = el('span', 'sub');
  const fillBar = el('span', 'fill');
  const bar = el('span', 'bar', fillBar);
  bar.setAttribute('aria-hidden', 'true');
  const left = el('span', 'sub left');
  const line = spark(bars);
  const element = el('li', 'source', el('div', 'who', name, of), el('div', 'how', how, why), el('div', 'last', last, beats),
    el('div', 'lifetime', bar, left), line);
  const row = { element, name, of, how, why, last, beats, bar, fillBar, left, line };
  name.addEventListener('click', () => openSource(row.shown.check, row.shown.source, look));
  return row;
}

function fill(row, s, received) {
  row.shown = s;
  row.received = received;
  setText(row.name, s.source);
  setTitle(row.name, `Everything about ${s.source} of ${s.check}`);
  setText(row.of, [s.check, ...Object.entries(s.labels || {}).map(([k, v]) => `${k}=${v}`)].join(' · '));
  setTitle(row.of, row.of.textContent);
  row.element.dataset.state = s.state;
  setText(row.how, s.state === 'up' && !s.last ? 'not seen' : s.state);
  setText(row.beats, plural(s.beats, 'beat', 'beats'));
  drawSpark(row.line, s);
}

// tick moves what moves by itself between two looks.
export function tick() {
  const now = performance.now();
  for (const row of (list.rows || new Map()).values()) {
    const s = row.shown;
    const passed = now - row.received;
    setText(row.why, why(s));
    setText(row.last, s.quiet_ms === undefined ? 'never' : `${coarse(s.quiet_ms + passed)} ago`);
    const rests = s.state === 'up' && resting.has(s.check);
    setText(row.left, rests ? 'its event is paused' : leftOf(s, passed));
    row.element.classList.toggle('late', s.state === 'up' && !rests && s.left_ms < passed);
    const limit = rests ? 0 : limits.get(s.check);
    row.bar.hidden = !limit || s.left_ms === undefined || s.state === 'down';
    if (row.bar.hidden) continue;
    const share = Math.min(1, Math.max(0, (s.left_ms - passed) / limit));
    row.fillBar.style.transform = `scaleX(${share.toFixed(3)})`;
    row.fillBar.dataset.level = share > 0.34 ? 'good' : 'low';
  }
}
