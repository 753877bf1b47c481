// The page of the history: what changed hands, the newest on top; of everything, of one
// subject, or of all that a text occurs in.

import { byId, duration, el, setText, timeOf } from './dom.js';
import { anchor, current, when } from './pages.js';
import { ask } from './stream.js';

const list = byId('history-list');
const text = byId('history-text');
const part = byId('history-part');
const most = 1000; // rows, and events that are asked for
const first = 200; // that are asked for when everything is shown
const seen = new Set();

const older = byId('history-older');

// stored are the names of parts in the store, which addresses of earlier versions have.
const stored = new Map([['batch', 'queue'], ['access', 'token']]);

let only = { part: '', subject: '', text: '' };
let latest = []; // what came before the page was opened, oldest first
let turn = 0; // counts the looks, so that an answer that comes late is not shown
let about = ''; // what is shown, in words
let reach = null; // the oldest event that was read, while there may be older ones

older.addEventListener('click', () => load(reach));

when('history', (rest) => {
  const [named = '', ...subject] = rest;
  const of = stored.get(named) || named;
  only = of === 'about' ? { part: '', subject: '', text: subject.join('/') } : { part: of, subject: subject.join('/'), text: '' };
  part.value = [...part.options].some((o) => o.value === only.part) ? only.part : '';
  text.value = only.text || only.subject;
  load();
});

// Who chooses by hand goes to the address of what is chosen.
part.addEventListener('change', () => { window.location.hash = `#/history${part.value ? `/${part.value}` : ''}`; });
let typing = 0;
text.addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    only = { ...only, subject: '', text: text.value.trim() };
    load();
  }, 250);
});

// fill takes in the events that were before, oldest first, silently.
export function fill(events) {
  latest = events;
  if (current() === 'history') load(); // otherwise it does when it is opened
}

// load reads the newest events, or those before one. The server looks for no text: what comes is filtered here, and says
// nothing of older ones.
async function load(before = null) {
  const mine = ++turn;
  const all = !only.part && !only.text;
  about = only.subject ? `of ${only.part} ${only.subject}` : only.text ? `that tells of “${only.text}”` : '';
  byId('history-all').hidden = all;
  if (!before) {
    reach = null;
    if (all) show(latest);
  }
  tellReach();
  try {
    const limit = only.text ? most : first;
    const query = new URLSearchParams({ limit });
    if (only.part) query.set('part', only.part);
    if (only.subject) query.set('subject', only.subject);
    if (before) query.set('before', before.id);
    const { events } = await (await ask(`/v1/history?${query}`)).json();
    if (mine !== turn) return;
    reach = events.length < limit ? null : events[0];
    if (before) for (const e of events) put(e, false);
    else show(events);
    empty();
  } catch (err) {
    if (mine === turn) setText(byId('history-summary'), `could not be read: ${err.message}`);
  }
}

// tellReach says how far back the list goes, and offers to read on while it has room.
function tellReach() {
  const full = list.childElementCount >= most;
  const back = full ? list.lastElementChild.querySelector('time').dateTime : reach && reach.at;
  setText(byId('history-summary'), [about, back ? `back to ${timeOf(back)}` : ''].filter((t) => t).join(', '));
  older.hidden = !reach || full;
}

const keyOf = (e) => `${e.id} ${e.at}`; // a store that is restored may give an id again

function show(events) {
  const keys = events.filter(wanted).map(keyOf).reverse();
  if (keys.length && keys.join() === [...list.children].map((row) => row.seenAs).join()) return; // whoever reads them keeps the place
  list.setAttribute('aria-busy', 'true');
  list.replaceChildren();
  seen.clear();
  for (const e of events) put(e, false);
  list.setAttribute('aria-busy', 'false');
  empty();
}

const wanted = (e) => (!only.part || e.part === only.part) && (!only.subject || e.subject === only.subject)
  && (!only.text || [e.part, e.subject, e.from, e.to, e.reason].join(' ').toLowerCase().includes(only.text.toLowerCase()));

// add takes in one that has just happened.
export function add(e) {
  latest = [...latest.slice(-(first - 1)), e];
  put(e, true);
}

function put(e, fresh) {
  if (!wanted(e)) return;
  const key = keyOf(e);
  if (seen.has(key)) return;
  seen.add(key);
  const { kind, words, aside } = describe(e);
  const time = el('time', '', timeOf(e.at));
  time.dateTime = e.at;
  time.title = `${new Date(e.at).toLocaleString()} by the store’s clock, event ${e.id}, term ${e.term}`;
  const subject = ['role', 'queue', 'monitor'].includes(e.part) ? e.subject : `${e.part} ${e.subject}`;
  const row = el('li', `event ${kind}`,
    time,
    el('div', 'what', anchor('name', subject, 'history', e.part, ...e.subject.split('/')), el('span', '', words), el('span', 'sub', aside)));
  row.eventId = e.id;
  row.seenAs = key;
  if (fresh) row.classList.add('changed');
  // An event that was written while others were may come late: it goes to its place.
  let at = list.firstElementChild;
  while (at && at.eventId > e.id) at = at.nextElementSibling;
  list.insertBefore(row, at);
  while (list.childElementCount > most) {
    seen.delete(list.lastElementChild.seenAs);
    list.lastElementChild.remove();
  }
  if (fresh) empty();
}

function empty() {
  byId('history-empty').hidden = list.childElementCount > 0;
  setText(byId('history-empty'), reach ? `No such events back to ${timeOf(reach.at)}; there are older ones.`
    : only.part || only.text ? 'No such events in the history.' : 'Nothing has changed hands yet.');
  list.hidden = list.childElementCount === 0;
  tellReach();
}

// nameOf leaves the instance's id out of its label.
const nameOf = (label) => label.slice(0, label.lastIndexOf('/') < 0 ? undefined : label.lastIndexOf('/'));

// describe puts an event into words.
export function describe(e) {
  if (e.part === 'queue' && e.from === e.to) return ofQueue(e);
  if (e.part === 'monitor') return ofMonitor(e);
  if (e.part === 'shard' && ofPlan.test(e.reason) && (e.to || !e.from)) return ofShard(e);
  if (!e.from && !e.to) return { kind: /^runs? of .* (lost|missed)|were missed/.test(e.reason) ? 'lapsed' : 'asked', words: '', aside: e.reason };
  const from = nameOf(e.from);
  const to = nameOf(e.to);
  const lasted = duration(e.duration_ms);
  if (e.to && e.from === e.to) return { kind: 'asked', words: to, aside: `${e.reason}; held for ${lasted}` };
  if (!e.to) return { kind: 'released', words: from ? `${from} → nobody` : '', aside: `${e.reason} after ${lasted}` };
  const gap = e.duration_ms <= 1 ? 'at once' : `${lasted} without a ${e.part === 'role' ? 'primary' : 'holder'}`;
  if (e.reason === 'lapsed') return { kind: 'lapsed', words: `${from || 'somebody'} → ${to}`, aside: `lapsed; followed ${e.duration_ms <= 1 ? 'at once' : `${lasted} after its time ran out`}` };
  if (e.reason === 'successor') return { kind: 'taken', words: `→ ${to}`, aside: `as named successor, ${gap}` };
  return { kind: 'taken', words: `→ ${to}`, aside: e.duration_ms > 0 ? gap : 'for the first time' };
}

// ofQueue: a key was blocked by its holder, or an operator acted on its message.
function ofQueue(e) {
  const blocked = e.reason.startsWith('blocked');
  return { kind: blocked ? 'lapsed' : 'asked', words: '', aside: e.to ? `${e.reason}; by ${nameOf(e.to)}` : e.reason };
}

const ofPlan = /^(failover|switchover|return|repair|paused|resumed|node)\b/;

// ofShard: a plan ended, or a person did something. Who holds the shard's lease is told as of any other.
function ofShard(e) {
  if (e.to) return { kind: 'taken', words: `${e.from || 'nobody'} → ${e.to}`, aside: e.reason };
  return { kind: / failed: /.test(e.reason) ? 'lapsed' : 'asked', words: '', aside: e.reason };
}

const outages = ['silent', 'failed', 'overrun'];

// ofMonitor: an alarm began or ended, or a person did something.
function ofMonitor(e) {
  const lasted = e.duration_ms > 0 ? `after ${duration(e.duration_ms)}` : '';
  if (outages.includes(e.reason)) return { kind: 'lapsed', words: e.reason, aside: 'alarm raised' };
  if (e.reason === 'ABATED') return { kind: 'taken', words: 'is back', aside: `alarm ended ${lasted}` };
  if (e.reason === 'retire' || e.reason === 'forget') return { kind: 'asked', words: e.reason === 'retire' ? 'retired' : 'forgotten', aside: `alarm ended ${lasted}` };
  return { kind: 'asked', words: '', aside: e.reason };
}
