// The section of the monitor: what stands, what is expected, and how it is doing.

import { button, byId, coarse, count, el, figureBoxes, keyed, meter, perSecond, plural, setText, setTitle, timeOf } from './dom.js';
import { openQueue } from './browse.js';
import { listWhole } from './listpages.js';
import { anchor, link, when } from './pages.js';
import { askToPause, askToResume } from './pause.js';
import { askToRemove } from './remove.js';
import { askToAcknowledge, openAlarm, openAlarms, openRejected, openSource, openUnended, subject, tick as tickWindow } from './source.js';
import * as sources from './sources.js';
import { storeClock } from './timeline.js';

const partitions = 64; // into which the sources are divided
const uncovered = 6000; // ms for which some of them may be nobody's, as when an instance starts
const stuckAfter = 60_000; // ms that a notice is tried in vain, and nobody need worry
const mostAlarms = 12;
const mostLines = 50; // instances and paths that are shown
const mostBlind = 5;

let state = null;
const rateOf = meter(); // of what this instance stores
let bare = 0; // since when some partitions are nobody's

export const news = () => (state && state.open ? plural(state.open, 'alarm', 'alarms') : '');

const checks = listWhole({
  id: 'checks',
  page: 'monitor',
  path: '/v1/checks',
  rows: (answer) => answer.checks,
  has: (e, text) => e.check.toLowerCase().includes(text),
  draw: drawEvents,
  words: ['check', 'checks'],
  head: true,
});
when('monitor', ([kind, ...rest]) => {
  if (kind === 'alarm') openAlarm(rest[0]);
  else if (kind === 'source') openSource(rest[0], rest.slice(1).join('/'));
});
byId('monitor-history').addEventListener('click', openAlarms);
byId('monitor-rejected').addEventListener('click', openRejected);
byId('monitor-all').addEventListener('click', openUnended);

// update takes in what the server says; queues are those that it tells of.
export function update(s, queues, self) {
  state = s;
  const { totals } = s;
  const known = totals.up + totals.down + totals.paused + totals.retired;
  const empty = totals.checks === 0;
  byId('monitor-empty').hidden = !empty;
  byId('monitor-body').hidden = empty;
  const parts = [plural(known, 'source', 'sources')];
  for (const [n, word] of [[totals.down, 'down'], [totals.paused, 'paused'], [totals.unseen, 'never seen'], [totals.retired, 'retired']]) if (n) parts.push(`${count(n)} ${word}`);
  setText(byId('monitor-summary'), empty ? '' : parts.join(', '));
  drawWarnings();
  drawAlarms();
  checks.update({ list: [...s.checks.filter((e) => e.down > 0), ...s.checks.filter((e) => e.down === 0)], total: totals.checks });
  drawIntake();
  drawRest(queues, self);
  sources.update(s.checks, known);
}

export function tick() {
  tickAlarms();
  sources.tick();
  tickWindow();
}

function drawWarnings() {
  const warnings = [];
  const warn = (key, text) => warnings.push({ key, text });
  if (state.error) warn('error', `The monitor could not be read: ${state.error}. The figures shown are old.`);
  if (state.config_error) warn('configuration', `The last configuration offered was not applied: ${state.config_error}`);
  const held = state.members.reduce((n, m) => n + m.partitions, 0);
  if (held >= partitions || state.totals.checks === 0) bare = 0;
  else if (!bare) bare = performance.now();
  const nobody = state.members.length === 0 && state.totals.checks > 0;
  if (nobody) warn('nobody', 'No instance of the monitor runs: heartbeats are not accepted, and silence raises no alarm. To start one: understudy monitor run');
  else if (bare && performance.now() - bare > uncovered) warn('bare', `${partitions - held} of the ${partitions} parts of the sources have no instance: silence there raises no alarm.`);
  const blind = nobody ? [] : state.paths.filter((p) => !p.working);
  for (const p of blind.slice(0, mostBlind)) warn(`path ${p.path}`, `${unproven(p)}: sources that beat that way are not judged by their silence. If it is gone for good: understudy monitor path remove ${p.path}`);
  if (blind.length > mostBlind) warn('paths', `The same goes for ${plural(blind.length - mostBlind, 'other path', 'other paths')}.`);
  for (const r of (state.instance && state.instance.routers) || []) if (r.error) warn(`router ${r.router}`, `This instance cannot read ${r.router}: ${r.error}`);
  if (state.totals.checks > 0 && state.sinks.length === 0) warn('sinks', 'No sinks configured: alarms are shown only here. To add one: understudy monitor run --webhook URL');
  keyed(byId('monitor-warnings'), warnings, (w) => w.key, () => ({ element: el('li') }), (row, w) => setText(row.element, w.text));
}

const unproven = ({ path, quiet_ms: quiet }) => (quiet === undefined ? `No probe has ever confirmed that heartbeats can arrive by ${path}` : `No probe has confirmed for ${coarse(quiet)} that heartbeats can arrive by ${path}`);

function drawAlarms() {
  const list = byId('monitor-alarms');
  const whole = state.alarms.filter((a) => !a.source);
  const groups = new Set(whole.map((a) => a.group));
  const all = [...whole, ...state.alarms.filter((a) => a.source && !groups.has(a.group))];
  const shown = all.slice(0, mostAlarms);
  keyed(list, shown, (a) => a.id, createAlarm, fillAlarm);
  list.hidden = shown.length === 0;
  byId('monitor-alarms-empty').hidden = shown.length > 0;
  const cut = all.length > shown.length || state.open > state.alarms.length;
  byId('monitor-all').hidden = shown.length === state.alarms.length && !cut;
  setText(byId('monitor-alarms-summary'), state.open ? `${plural(state.open, 'source is', 'sources are')} down${cut ? `, the newest ${shown.length} alarms shown` : ''}` : '');
  tickAlarms();
}

function createAlarm() {
  const name = button('', () => (row.shown.source ? openSource(row.shown.check, row.shown.source) : openAlarm(row.shown.id)), 'link name');
  const of = el('span', 'sub');
  const reason = el('strong');
  const since = el('span', 'sub');
  const known = el('span', 'sub');
  const ack = button('Acknowledge…', () => askToAcknowledge(row.shown));
  const past = anchor('quiet', 'History', 'history');
  const element = el('li', 'alarm', el('div', 'who', name, of), el('div', '', reason, since), known, el('div', 'act', ack, past));
  const row = { element, past, name, of, reason, since, known, ack };
  return row;
}

const reasons = { silent: 'silent', failed: 'failed', overrun: 'runs for too long' };

function fillAlarm(row, a) {
  row.shown = a;
  const e = state.checks.find((one) => one.check === a.check);
  setText(row.name, subject(a));
  setTitle(row.name, subject(a));
  setText(row.of, [a.check, e && e.severity, ...Object.entries(a.labels || {}).map(([k, v]) => `${k}=${v}`)].filter((t) => t).join(' · '));
  setTitle(row.of, row.of.textContent);
  setText(row.reason, reasons[a.reason] || a.reason);
  setTitle(row.since, `since ${new Date(a.started).toLocaleString()} by the store’s clock; found ${new Date(a.raised).toLocaleString()}`);
  setText(row.known, a.acknowledged ? `known to ${a.acknowledged}` : '');
  row.element.classList.toggle('known', Boolean(a.acknowledged));
  row.past.href = link('history', 'monitor', ...(a.source ? `${a.check}/${a.source}` : a.group).split('/'));
  row.past.setAttribute('aria-label', `History of ${subject(a)}`);
  row.ack.hidden = Boolean(a.acknowledged);
  row.ack.setAttribute('aria-label', `Acknowledge the alarm of ${subject(a)}`);
}

function tickAlarms() {
  for (const row of (byId('monitor-alarms').rows || new Map()).values()) {
    setText(row.since, `for ${coarse(storeClock() - new Date(row.shown.started).getTime())}, since ${timeOf(row.shown.started)}`);
  }
}

const counts = [
  ['up', 'Up', (e) => e.up, 'nothing is known against them'],
  ['down', 'Down', (e) => e.down, 'open alarms'],
  ['paused', 'Paused', (e) => e.paused_sources, 'not judged for now'],
  ['retired', 'Retired', (e) => e.retired, 'not judged any more, until they beat'],
];

function drawEvents(shown, summary) {
  const list = byId('checks-list');
  keyed(list, shown, (e) => e.check, createEvent, fillEvent);
  list.hidden = shown.length === 0;
  setText(byId('checks-summary'), summary);
}

function createEvent() {
  const name = el('h4', 'name');
  const what = el('p', 'sub');
  const row = { name, what };
  row.counts = counts.map(([state, title, , meaning]) => {
    const link = button('', () => sources.choose(row.shown.check, state), 'link');
    link.title = meaning;
    return { link, box: el('div', '', el('dt', '', title), el('dd', '', link)) };
  });
  row.past = anchor('quiet', 'History', 'history');
  row.button = button('', () => (row.shown.paused ? askToResume(row.shown.check) : askToPause(row.shown.check)));
  row.gone = button('Remove…', () => askToRemove.check(row.shown.check));
  row.element = el('li', 'event-name', el('div', 'who', name, what), el('dl', 'figures', ...row.counts.map((c) => c.box)), el('div', 'act', row.button, row.gone, row.past));
  return row;
}

// exact is a duration as somebody configured it.
function exact(ms) {
  for (const [unit, size] of [['d', 86_400_000], ['h', 3_600_000], ['min', 60_000]]) if (ms >= size && ms % size === 0) return `${ms / size} ${unit}`;
  return ms < 1000 ? `${ms} ms` : `${ms / 1000} s`;
}

function expected(e) {
  const out = [e.schedule ? `at ${e.schedule}` : `every ${exact(e.interval_ms)}`];
  if (e.missed > 1) out[0] += ` × ${count(e.missed)}`;
  if (e.grace_ms) out.push(`grace ${exact(e.grace_ms)}`);
  if (e.fixed) out.push('only declared sources');
  if (e.severity) out.push(e.severity);
  if (e.removed) out.push('removed: its sources are being forgotten');
  else if (e.paused) out.push('paused');
  return out.filter((t) => t).join(', ');
}

function fillEvent(row, e) {
  row.shown = e;
  setText(row.name, e.check);
  setTitle(row.name, e.check);
  setText(row.what, expected(e) + (e.unseen ? `; ${count(e.unseen)} never seen` : ''));
  counts.forEach(([state, , value], i) => {
    const { link } = row.counts[i];
    setText(link, count(value(e)));
    link.disabled = value(e) === 0;
    link.setAttribute('aria-label', `Show the ${count(value(e))} sources of ${e.check} that are ${state}`);
  });
  row.past.href = link('history', 'about', `${e.check}/`);
  row.past.setAttribute('aria-label', `History of ${e.check}`);
  row.element.classList.toggle('vacant', e.down > 0);
  row.element.classList.toggle('idle', Boolean(e.paused || e.removed));
  setText(row.button, e.paused ? 'Resume…' : 'Pause…');
  row.button.setAttribute('aria-label', `${e.paused ? 'Resume' : 'Pause'} ${e.check}`);
  row.gone.setAttribute('aria-label', `Remove ${e.check}`);
  row.button.hidden = row.gone.hidden = Boolean(e.removed);
}

// figures of this instance's intake: name, value and what it means.
const figures = [
  ['Beats', (i, rate) => perSecond(rate), 'that this instance stores, by the second, lately'],
  ['Waiting', (i) => count(i.queued), 'beats that wait here to be stored'],
  ['Stored', (i) => count(i.accepted), 'beats, by this instance since it started'],
  ['Not known', (i) => count(i.unknown), 'beats of checks that are not configured, or of sources that are not declared'],
  ['Replayed', (i) => count(i.replayed), 'beats that had come before'],
  ['Sent away', (i) => count(i.busy), 'requests that were refused because too much waited'],
  ['Rejected', (i) => count(i.rejected), 'messages that were not accepted'],
  ['Raised', (i) => count(i.raised), 'alarms, by this instance since it started'],
  ['Ended', (i) => count(i.abated), 'alarms that a heartbeat or a changed check has ended, by this instance since it started'],
];

let values = null;
function drawIntake() {
  const i = state.instance;
  byId('monitor-intake').hidden = !i;
  byId('monitor-rejected').hidden = !i;
  if (!i) return;
  if (!values) {
    values = figureBoxes(figures);
    byId('monitor-figures').append(...values.map((dd) => dd.parentElement));
  }
  const rate = rateOf(i.accepted);
  figures.forEach(([, value], n) => setText(values[n], value(i, rate)));
  setText(byId('monitor-rejected'), i.rejected ? `Rejected input (${count(i.rejected)})` : 'Rejected input');
}

function pathState({ working, quiet_ms: quiet }) {
  if (quiet === undefined) return 'never confirmed';
  return working ? `works, confirmed ${coarse(quiet)} ago` : `blind for ${coarse(quiet)}`;
}

// wayOf tells of a path, and of the router that this instance reads by it.
function wayOf({ path, router }) {
  const words = path ? [pathState(path), path.blind_ms ? `blind for ${coarse(path.blind_ms)} in all` : ''] : ['nothing has come'];
  if (router) words.push(router.error ? `cannot be read here since ${timeOf(router.since)}` : `${plural(router.messages, 'message', 'messages')} read here${router.behind ? ', and more wait' : ''}`);
  return words.filter((t) => t).join('; ');
}

function drawRest(queues, self) {
  const routers = (state.instance && state.instance.routers) || [];
  const reads = (p, r) => p.path === r.router || p.path === `router.${r.router}`;
  const ways = [...state.paths.map((p) => ({ name: p.path, path: p, router: routers.find((r) => reads(p, r)) })),
    ...routers.filter((r) => !state.paths.some((p) => reads(p, r))).map((r) => ({ name: r.router, router: r }))];
  keyed(byId('monitor-paths'), ways.slice(0, mostLines), (w) => w.name, createLine, (row, w) => fillLine(row, w.name, wayOf(w), (!w.path || w.path.working) && !(w.router && w.router.error)));
  keyed(byId('monitor-members'), state.members.slice(0, mostLines), (m) => m.instance.id, createLine, (row, m) => fillLine(row, m.instance.name,
    [`${m.partitions} of ${partitions} parts`, self && self.id === m.instance.id ? 'this server' : '', m.active ? 'fetches the configuration' : '',
      m.sinks.length ? `delivers to ${m.sinks.join(', ')}` : '', m.host ? `process ${m.process} on ${m.host}` : ''].filter((t) => t).join('; '), m.partitions > 0 || state.members.length > partitions));
  const byName = new Map((queues ? queues.list : []).map((q) => [q.queue, q]));
  keyed(byId('monitor-sinks'), state.sinks, (s) => s, createSink, (row, s) => fillSink(row, s, byName.get(`alarms.${s}`)));
  for (const [id, list] of [['paths', ways], ['members', state.members], ['sinks', state.sinks]]) {
    byId(`monitor-${id}`).hidden = list.length === 0;
    byId(`monitor-${id}-empty`).hidden = list.length > 0;
  }
  const from = state.origin ? ` from ${state.origin}` : '';
  setText(byId('monitor-configured'), state.configured ? `Configured ${timeOf(state.configured)}${from}.` : '');
}

function createLine() {
  const name = el('strong', 'name');
  const what = el('span', 'sub');
  return { element: el('li', 'part', name, what), name, what };
}

function fillLine(row, name, what, good) {
  setText(row.name, name);
  setTitle(row.name, name);
  setText(row.what, what);
  row.element.classList.toggle('vacant', !good);
}

function createSink(s) {
  const row = createLine();
  row.button = button('Show…', () => openQueue(`alarms.${s}`));
  row.button.setAttribute('aria-label', `Show what waits for ${s}`);
  row.element.append(row.button);
  row.element.classList.add('acts');
  return row;
}

function fillSink(row, s, q) {
  if (!q) {
    fillLine(row, s, 'how its queue is doing is not known', true);
    return;
  }
  const words = [q.depth ? `${plural(q.depth, 'notice waits', 'notices wait')}${q.oldest_ms >= 1000 ? `, the oldest for ${coarse(q.oldest_ms)}` : ''}` : 'all delivered'];
  if (q.delayed) words.push(`${count(q.delayed)} tried again later`);
  if (q.blocked) words.push(`${count(q.blocked)} blocked`);
  if (q.holders.length === 0) words.push('no instance delivers');
  const stuck = q.blocked > 0 || q.holders.length === 0 || (q.delayed > 0 && q.oldest_ms > stuckAfter);
  fillLine(row, s, words.join(', '), !stuck);
}
