// The section of the history: what changed hands, the newest on top.

import { byId, duration, el, timeOf } from './dom.js';

const list = byId('history-list');
const most = 200;
const seen = new Set();

// fill takes in the events that were before, oldest first, silently.
export function fill(events) {
  list.setAttribute('aria-busy', 'true');
  for (const e of events) add(e, false);
  list.setAttribute('aria-busy', 'false');
  empty();
}

export function add(e, fresh = true) {
  const key = `${e.id} ${e.at}`; // a store that is restored may give an id again
  if (seen.has(key)) return;
  seen.add(key);
  const { kind, words, aside } = describe(e);
  const time = el('time', '', timeOf(e.at));
  time.dateTime = e.at;
  time.title = `${new Date(e.at).toLocaleString()} by the store’s clock, event ${e.id}, term ${e.term}`;
  const subject = ['role', 'batch', 'monitor'].includes(e.part) ? e.subject : `${e.part} ${e.subject}`;
  const row = el('li', `event ${kind}`,
    time,
    el('div', 'what', el('strong', '', subject), el('span', '', words), el('span', 'sub', aside)));
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
  empty();
}

function empty() {
  byId('history-empty').hidden = list.childElementCount > 0;
  list.hidden = list.childElementCount === 0;
}

// nameOf leaves the instance's id out of its label.
const nameOf = (label) => label.slice(0, label.lastIndexOf('/') < 0 ? undefined : label.lastIndexOf('/'));

// describe puts an event into words.
function describe(e) {
  if (e.part === 'batch' && e.from === e.to) return ofBatch(e);
  if (e.part === 'monitor') return ofMonitor(e);
  if (e.part === 'shard' && ofPlan.test(e.reason) && (e.to || !e.from)) return ofShard(e);
  const from = nameOf(e.from);
  const to = nameOf(e.to);
  const lasted = duration(e.duration_ns / 1e6);
  if (e.to && e.from === e.to) return { kind: 'asked', words: to, aside: `${e.reason}; in office for ${lasted}` };
  if (!e.to) return { kind: 'released', words: from ? `${from} → nobody` : '', aside: `${e.reason} after ${lasted}` };
  const gap = e.duration_ns < 1e6 ? 'at once' : `${lasted} without a ${e.part === 'role' ? 'primary' : 'holder'}`;
  if (e.reason === 'lapsed') return { kind: 'lapsed', words: `${from || 'somebody'} → ${to}`, aside: `lapsed; followed ${e.duration_ns < 1e6 ? 'at once' : `${lasted} after its time ran out`}` };
  if (e.reason === 'successor') return { kind: 'taken', words: `→ ${to}`, aside: `as named successor, ${gap}` };
  return { kind: 'taken', words: `→ ${to}`, aside: e.duration_ns > 0 ? gap : 'for the first time' };
}

// ofBatch: a key was blocked by whoever had it, or a person acted on its batch.
function ofBatch(e) {
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
  const lasted = e.duration_ns > 0 ? `after ${duration(e.duration_ns / 1e6)}` : '';
  if (outages.includes(e.reason)) return { kind: 'lapsed', words: e.reason, aside: 'alarm raised' };
  if (e.reason === 'ABATED') return { kind: 'taken', words: 'is back', aside: `alarm ended ${lasted}` };
  if (e.reason === 'retire' || e.reason === 'forget') return { kind: 'asked', words: e.reason === 'retire' ? 'retired' : 'forgotten', aside: `alarm ended ${lasted}` };
  return { kind: 'asked', words: '', aside: e.reason };
}
