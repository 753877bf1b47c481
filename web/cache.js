// The section of the cache: its peers, how it is doing, and its keys.

import { button, byId, coarse, count, duration, el, figureBoxes, keyed, perSecond, plural, setText, setTitle } from './dom.js';
import { question } from './act.js';
import { ask, follow } from './stream.js';
import * as log from './cachelog.js';
import { remoteClock } from './timeline.js';

const page = 100; // keys that are shown
const every = 2000; // ms between two looks at the keys, or ten times as long as one takes
const span = 10_000; // ms over which rates are taken

const filter = byId('cache-filter');
const removeMany = byId('cache-remove');
const now = remoteClock(); // of the peer

let state = null;
let states = []; // the latest, oldest first
let keys = [];
let more = false;
let failed = ''; // why the keys could not be read
let next = 0; // timer of the next look
let turn = 0; // counts the looks, so that an answer that comes late is not shown

// start follows the peer until the function that it returns is called; on is told
// of the connection, and of each state.
export function start(on = {}) {
  states = [];
  const nothing = () => {};
  const stop = follow({
    connected: on.connected || nothing,
    lost: on.lost || nothing,
    unauthorized: on.unauthorized || nothing,
    state: (s) => { update(s); (on.state || nothing)(); },
    cache: log.add,
  }, null, '/v1/cache-events?state=true');
  look();
  return () => { stop(); turn++; clearTimeout(next); };
}

// news is what the title of the page should say.
export const news = () => (state && state.cluster && state.cluster.partitioned ? 'cache cut off' : '');

function update(s) {
  now.sync(new Date(s.at).getTime());
  const last = states[states.length - 1];
  if (last && last.stats.fetches > s.stats.fetches) states = []; // the peer has started anew
  states.push(s);
  while (states.length > 2 && new Date(s.at) - new Date(states[0].at) > span) states.shift();
  state = s;
  drawCluster();
  drawFigures();
  drawKeys();
}

function drawCluster() {
  const c = state.cluster;
  const warnings = [];
  if (!c) warnings.push(`The peer does not report its cluster: ${state.error}`);
  else {
    if (!c.member) warnings.push('This peer is not a member of the cluster: it serves the copies it has and does not fetch.');
    else if (c.partitioned) warnings.push(`This peer is cut off: it reaches ${c.connected} of the ${c.majority} members that are a majority. It serves the copies it has and does not fetch.`);
    else if (c.abstaining) warnings.push('This peer started recently and does not vote yet.');
    if (c.trouble) warnings.push(c.trouble);
  }
  if (state.stats.save_failures > 0) warnings.push(`${plural(state.stats.save_failures, 'copy', 'copies')} could not be stored.`);
  keyed(byId('cache-warnings'), warnings, (w) => w, (w) => ({ element: el('li', '', w) }), () => {});
  if (!c) return;
  const self = c.peers.find((p) => p.self);
  setText(byId('cache-summary'), `${c.connected} of ${plural(c.peers.length, 'peer', 'peers')} connected${alone() && state.version ? `, version ${state.version}` : ''}`);
  setTitle(byId('cache-summary'), self ? `as ${self.url} sees it` : '');
  keyed(byId('cache-peers'), c.peers, (p) => p.url, createPeer, fillPeer);
}

// alone: no server around the peer says its version.
const alone = () => document.body.classList.contains('alone');

function createPeer() {
  const name = el('h3', 'name');
  const here = el('span', 'chip', 'this peer');
  const api = el('span', 'sub');
  const link = el('strong');
  const since = el('span', 'sub');
  const kind = el('span', 'sub');
  const element = el('li', 'peer', el('div', 'who', el('div', 'line', name, here), api), el('div', 'what', link, since), kind);
  return { element, name, here, api, link, since, kind };
}

const links = { up: 'connected', down: 'not connected', dead: 'its process has ended' };

function fillPeer(row, p) {
  setText(row.name, p.url);
  setTitle(row.name, p.url);
  row.here.hidden = !p.self;
  setText(row.api, `clients ask ${p.api}`);
  setText(row.link, p.self ? '' : links[p.link] || p.link);
  setText(row.since, p.since && !p.self ? `for ${coarse(now() - new Date(p.since).getTime())}` : '');
  row.element.classList.toggle('vacant', !p.self && p.link !== 'up');
  const facts = [];
  if (p.kind === 'other') facts.push('speaks the original’s protocol');
  if (p.list && p.list !== 'same') facts.push(`another list of members: ${p.list}`);
  if (p.skew_ms && Math.abs(p.skew_ms) >= 100) facts.push(`clock ${p.skew_ms > 0 ? 'ahead' : 'behind'} by ${duration(Math.abs(p.skew_ms))}`);
  if (p.dropped) facts.push(`${count(p.dropped)} messages dropped`);
  if (p.busy) facts.push('fetches');
  setText(row.kind, facts.join(', '));
}

// figures of the peer: name, value and what it means.
const figures = [
  ['Hits', (r) => perSecond(r.rate('hits')), 'fresh copies given, by the second'],
  ['Stale', (r) => perSecond(r.rate('stales')), 'old copies given while a new one was fetched, by the second'],
  ['Misses', (r) => perSecond(r.rate('misses')), 'requests that waited for a value, by the second'],
  ['Waiting', (r) => count(r.now.waiting), 'requests that wait for a value now'],
  ['Origin', (r) => mean(r, 'fetch_ms', 'fetches'), 'how long the origin took, on average'],
  ['Fetches', (r) => `${count(r.now.fetches)}${r.now.fetching ? ` (${count(r.now.fetching)} now)` : ''}`, 'calls of the origin by this peer since it started'],
  ['Failed', (r) => count(r.now.fetch_failures), 'of these, without a value'],
  ['Elections', (r) => mean(r, 'election_ms', 'won'), 'how long the elections took that this peer won, on average'],
  ['Keys', (r) => count(r.now.keys), 'copies held'],
  ['Memory', (r) => bytes(r.now.bytes), 'of keys and values'],
];

let values = null;
function drawFigures() {
  if (!values) {
    values = figureBoxes(figures);
    byId('cache-figures').append(...values.map((dd) => dd.parentElement));
  }
  const first = states[0];
  const seconds = (new Date(state.at) - new Date(first.at)) / 1000;
  const r = {
    now: state.stats,
    since: (name) => state.stats[name] - first.stats[name],
    rate: (name) => (seconds > 0 ? (state.stats[name] - first.stats[name]) / seconds : 0),
  };
  figures.forEach(([, value], i) => setText(values[i], value(r)));
  values[6].classList.toggle('bad-value', state.stats.fetch_failures > first.stats.fetch_failures);
}

// mean is over the last seconds, or since the start when nothing has happened in them.
function mean(r, time, events) {
  const lately = r.since(events);
  if (lately > 0) return fine(r.since(time) / lately);
  return r.now[events] > 0 ? fine(r.now[time] / r.now[events]) : '–';
}

const fine = (ms) => (ms < 1 ? `${Math.round(ms * 1000)} µs` : duration(ms));

function bytes(n) {
  for (const unit of ['B', 'KiB', 'MiB']) {
    if (n < 1024) return `${n >= 100 || unit === 'B' ? Math.round(n) : n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} GiB`;
}

// look reads the keys, and again after a while.
async function look() {
  clearTimeout(next);
  const mine = ++turn;
  const began = performance.now();
  if (!document.hidden) {
    try {
      const answer = await (await ask(`/v1/cache?limit=${page}&prefix=${encodeURIComponent(filter.value)}`)).json();
      if (mine !== turn) return;
      keys = answer.keys;
      more = answer.next !== undefined;
      failed = '';
    } catch (err) {
      if (mine !== turn) return;
      failed = err.message;
    }
    if (state) drawKeys();
  }
  next = setTimeout(look, Math.max(every, 10 * (performance.now() - began)));
}

filter.addEventListener('input', () => { clearTimeout(next); next = setTimeout(look, 200); turn++; });
document.addEventListener('visibilitychange', () => { if (!document.hidden && state) look(); });

function drawKeys() {
  keyed(byId('cache-keys'), keys, (k) => k.key_base64 || k.key, createKey, fillKey);
  byId('cache-keys').hidden = keys.length === 0;
  let text = filter.value ? plural(keys.length, 'key', 'keys') : `${count(Math.max(state.stats.keys, keys.length))} ${keys.length === 1 ? 'key' : 'keys'}`;
  if (more) text += filter.value ? ' and more' : `, the first ${keys.length} shown`;
  if (failed) text += `; they could not be read: ${failed}`;
  setText(byId('cache-keys-summary'), text);
  byId('cache-empty').hidden = keys.length > 0;
  setText(byId('cache-empty'), filter.value ? 'No key starts with that.' : 'No key has been requested yet. Ask for one: understudy cache get KEY');
  removeMany.hidden = keys.length === 0;
  setText(removeMany, filter.value ? 'Remove all that begin so…' : 'Remove all…');
}

const facts = [
  ['Age', (k) => (k.made ? coarse(now() - new Date(k.made).getTime()) : '–'), 'since its fetch began'],
  ['Fresh for', (k) => freshness(k), 'until then it is given as fresh'],
  ['Size', (k) => (k.expire ? bytes(k.size) : '–'), 'of the value'],
  ['Waiting', (k) => count(k.waiting), 'requests that wait for it here'],
  ['Term', (k) => String(k.term), 'of the fetch: grows with each'],
];

function freshness(k) {
  if (!k.expire) return 'no copy';
  const left = new Date(k.expire).getTime() - now();
  return left > 0 ? coarse(left) : 'stale';
}

function createKey() {
  const name = el('h3', 'name');
  const doing = el('p', 'sub');
  const dds = figureBoxes(facts);
  const failure = el('p', 'sub reason');
  const refresh = button('Refresh…', () => askToRefresh(row.shown));
  const remove = button('Remove…', () => askToRemove(row.shown));
  const element = el('li', 'cached', el('div', 'who', name, doing), el('dl', 'figures', ...dds.map((dd) => dd.parentElement)),
    el('div', 'line act', refresh, remove), failure);
  const row = { element, name, doing, dds, failure, refresh, remove };
  return row;
}

function doing(k) {
  if (k.state === 'fetching') return 'this peer fetches it';
  if (k.state === 'candidate') return 'this peer asks to fetch it';
  if (k.state === 'follower') return `follows ${k.peer || 'another peer'}`;
  return '';
}

function fillKey(row, k) {
  row.shown = k;
  setText(row.name, k.key);
  setTitle(row.name, k.key);
  setText(row.doing, doing(k));
  facts.forEach(([, value], i) => setText(row.dds[i], value(k)));
  const stale = k.expire && new Date(k.expire).getTime() <= now();
  row.element.classList.toggle('idle', Boolean(stale) && k.state === 'idle' && !k.failure);
  row.element.classList.toggle('vacant', Boolean(k.failure));
  row.element.classList.toggle('busy', k.state !== 'idle');
  row.failure.hidden = !k.failure;
  if (k.failure) {
    const wait = k.retry ? new Date(k.retry).getTime() - now() : 0;
    setText(row.failure, `${k.failure} · ${wait > 0 ? `may be tried again in ${coarse(wait)}` : 'is tried again at the next request'}`);
  }
  row.refresh.setAttribute('aria-label', `Refresh ${k.key}`);
  row.remove.setAttribute('aria-label', `Remove ${k.key}`);
}

// encoded is a key in a URL, exactly.
function encoded(k) {
  if (!k.key_base64) return encodeURIComponent(k.key);
  return Array.from(atob(k.key_base64), (c) => `%${c.charCodeAt(0).toString(16).padStart(2, '0')}`).join('');
}

function askToRefresh(k) {
  question({
    title: `Refresh ${k.key}?`,
    what: 'One peer fetches it now, even if its copy is fresh.',
    text: 'The present copy is served until then.',
    signed: false,
    ok: 'Refresh',
    act: async () => {
      const item = await (await ask(`/v1/cache-refresh?key=${encoded(k)}`, { method: 'POST' })).json();
      return `Refreshed ${k.key}: ${bytes(item.size)}, term ${item.term}.`;
    },
    done: look,
  });
}

const removed = (what, { confirmed, of }) => `Removed ${what}; ${confirmed} of ${of} peers have confirmed.${confirmed < of ? ' The others remove theirs when they are back.' : ''}`;

function askToRemove(k) {
  question({
    title: `Remove ${k.key}?`,
    what: 'Every peer removes its copy.',
    text: 'The next request for it waits for the origin.',
    signed: false,
    ok: 'Remove',
    danger: true,
    act: async () => removed(k.key, await (await ask(`/v1/cache?key=${encoded(k)}`, { method: 'DELETE' })).json()),
    done: look,
  });
}

removeMany.addEventListener('click', () => {
  const prefix = filter.value;
  const what = prefix ? `every key that begins with ${prefix}` : 'every key';
  question({
    title: `Remove ${what}?`,
    what: prefix ? 'Every peer removes its copies of them.' : `Every peer removes all its copies: ${plural(state.stats.keys, 'copy', 'copies')} here.`,
    text: 'Each is fetched from the origin again at its next request: make sure the origin can take that.',
    signed: false,
    ok: 'Remove',
    danger: true,
    act: async () => removed(what, await (await ask(`/v1/cache?${prefix ? `prefix=${encodeURIComponent(prefix)}` : 'all=true'}`, { method: 'DELETE' })).json()),
    done: look,
  });
});
