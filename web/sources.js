// The list of the monitor's sources: filtered, page by page, with times that go on
// by themselves.

import { button, byId, coarse, count, el, keyed, plural, setText, setTitle } from './dom.js';
import { listPages } from './listpages.js';
import { leftOf, openSource, why } from './source.js';
import { drawSpark, spark } from './spark.js';

const bars = 32;

const list = byId('sources-list');
const event = byId('sources-event');
const state = byId('sources-state');
const text = byId('sources-text');

let limits = new Map(); // how long sources of an event may be quiet, in ms
let total = 0;

// update tells of the checks, and how many sources there are.
export function update(events, sources) {
  limits = new Map(events.filter((e) => e.interval_ms).map((e) => [e.check, e.interval_ms * e.missed + (e.grace_ms || 0)]));
  total = sources;
  const names = events.filter((e) => !e.removed).map((e) => e.check);
  if (event.shown !== names.join('\n')) {
    event.shown = names.join('\n');
    const chosen = event.value;
    event.replaceChildren(new Option('All checks', ''), ...names.map((n) => new Option(n, n)));
    event.value = names.includes(chosen) ? chosen : '';
  }
  pages.start();
}

// choose shows the sources of an event that are in a state.
export function choose(ofEvent, inState) {
  if (![...event.options].some((o) => o.value === ofEvent)) event.append(new Option(ofEvent, ofEvent)); // one of very many
  event.value = ofEvent;
  state.value = inState;
  text.value = '';
  pages.anew();
  byId('sources-title').scrollIntoView({ block: 'start' });
  state.focus({ preventScroll: true });
}

const pages = listPages({
  id: 'sources',
  path: '/v1/sources',
  params: () => Object.fromEntries([['check', event.value], ['state', state.value], ['contains', text.value.trim()]].filter(([, value]) => value)),
  draw: (answer) => draw(answer.sources, performance.now()),
  say,
});

for (const select of [event, state]) select.addEventListener('change', () => pages.anew());
text.addEventListener('input', () => pages.anew(200));

function say({ number, following, failed }) {
  const shown = list.childElementCount;
  const wanted = Boolean(event.value || state.value || text.value.trim());
  let words = wanted ? `${count(shown)}${following || number > 1 ? ' shown' : ' found'}` : plural(total, 'source', 'sources');
  if (number > 1) words += `, page ${number}`;
  else if (following && !wanted) words += `, the first ${shown} shown`;
  if (failed) words += `; they could not be read: ${failed}`;
  setText(byId('sources-summary'), words);
  list.hidden = shown === 0;
  const none = byId('sources-empty');
  none.hidden = shown > 0;
  if (following) setText(none, 'No match so far; there are more to search.');
  else setText(none, wanted || number > 1 ? 'No such source.' : 'No source has sent a heartbeat, and none is declared. Send one: understudy source beat CHECK NAME');
}

function draw(sources, received) {
  keyed(list, sources, (s) => JSON.stringify([s.check, s.source]), create, (row, s) => fill(row, s, received));
  tick();
}

function create() {
  const name = button('', () => openSource(row.shown.check, row.shown.source, pages.look), 'link name');
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
    const rests = s.state === 'up' && s.check_paused;
    setText(row.left, leftOf(s, passed));
    row.element.classList.toggle('late', s.state === 'up' && !rests && s.left_ms < passed);
    const limit = rests ? 0 : limits.get(s.check);
    row.bar.hidden = !limit || s.left_ms === undefined || s.state === 'down';
    if (row.bar.hidden) continue;
    const share = Math.min(1, Math.max(0, (s.left_ms - passed) / limit));
    row.fillBar.style.transform = `scaleX(${share.toFixed(3)})`;
    row.fillBar.dataset.level = share > 0.34 ? 'good' : 'low';
  }
}
