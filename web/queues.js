// The section of the queues: what waits, who delivers it, and what is blocked.

import { button, byId, coarse, count, el, figureBoxes, keyed, meter, perSecond, plural, setText, setTitle } from './dom.js';
import { askToAct } from './act.js';
import { openMessage, openKey, openQueue } from './browse.js';
import { listWhole } from './listpages.js';
import { anchor, link, seek, when } from './pages.js';
import { askToRemove } from './remove.js';

const list = byId('queues-list');
const most = 12; // instances of a queue that are shown

let total = 0;

const queues = listWhole({
  id: 'queues',
  path: '/v1/queues',
  rows: (answer) => dated(answer.queues, answer.at),
  has: (q, text) => q.queue.toLowerCase().includes(text),
  draw,
  words: ['queue', 'queues'],
});
when('queues', ([queue, key, id]) => {
  queues.seek(queue);
  if (key) openKey(queue, key, id);
});

// dated gives each queue the time of the reading that it is from.
function dated(rows, at) {
  return rows.map((q) => ({ ...q, at }));
}

// update takes in what the server says.
export function update(state) {
  total = state.total;
  const blocked = state.list.reduce((n, q) => n + q.blocked, 0);
  queues.update({ ...state, list: dated(state.list, state.at) }, [blocked && state.list.length === total ? `${plural(blocked, 'key', 'keys')} blocked` : '',
    state.error ? `they could not be read: ${state.error}` : ''].filter((t) => t).join(', '));
}

function draw(shown, summary) {
  byId('queues-empty').hidden = total > 0;
  list.hidden = shown.length === 0;
  setText(byId('queues-summary'), summary);
  keyed(list, shown, (q) => q.queue, create, fill);
  seek();
}

// figures of a queue: name, value and what it means.
const figures = [
  ['Waiting', (q) => count(q.depth), 'messages that are not final'],
  ['Delivered', (q, rate) => perSecond(rate), 'messages that were committed or cancelled, by the second, lately'],
  ['Oldest', (q) => (q.oldest_ms >= 1 ? coarse(q.oldest_ms) : '–'), 'how long the oldest waiting message waits, those of blocked keys too'],
  ['In flight', (q) => count(q.in_flight), 'keys whose message is being submitted'],
  ['Pending', (q) => count(q.pending), 'keys whose message the target has and has not decided'],
  ['Scheduled', (q) => count(q.scheduled || 0), 'messages that wait for their time'],
  ['Delayed', (q) => count(q.delayed), 'keys that wait for another attempt'],
  ['Refused', (q) => count(q.refused || 0), 'keys whose message the target refuses, and that try again'],
  ['Blocked', (q) => count(q.blocked), 'keys that wait for an operator'],
  ['Dead letters', (q) => count(q.dead_letters), 'messages that ended as invalid or failed, until they are pruned'],
];

function create() {
  const name = el('h3', 'name');
  const sub = el('p', 'sub');
  const values = figureBoxes(figures);
  const holders = el('ul', 'chips');
  const blocked = el('ul', 'blocked');
  const more = el('p', 'sub');
  const past = anchor('quiet', 'History', 'history');
  const open = button('Show…', () => openQueue(row.queue.queue));
  const gone = button('Remove…', () => askToRemove.queue(row.queue));
  const element = el('li', 'queue', el('div', 'who', name, sub), el('dl', 'figures', ...values.map((dd) => dd.parentElement)),
    el('div', 'act', open, gone, past), holders, blocked, more);
  const row = { element, name, sub, values, meter: meter(), rate: null, at: '', holders, blocked, more, open, gone, past };
  return row;
}

function fill(row, q) {
  row.queue = q;
  if (row.at !== q.at) { // several states, up to minutes of them, can come from one reading
    row.at = q.at;
    row.rate = row.meter(q.done, Date.parse(q.at));
  }
  setText(row.name, q.queue);
  setTitle(row.name, q.queue);
  setText(row.sub, q.holders.length ? plural(q.holders.length, 'instance', 'instances') : 'no instance delivers');
  figures.forEach(([title, value], i) => {
    setText(row.values[i], value(q, row.rate));
    row.values[i].classList.toggle('bad-value', title === 'Blocked' && q.blocked > 0 || title === 'Refused' && q.refused > 0);
  });
  row.element.classList.toggle('vacant', q.blocked > 0 || q.refused > 0 || (q.holders.length === 0 && (q.depth > 0 || q.scheduled > 0 && q.oldest_ms > 1000)));
  row.element.classList.toggle('idle', q.depth === 0);
  row.past.href = link('history', 'about', `${q.queue}/`);
  row.past.setAttribute('aria-label', `History of ${q.queue}`);
  row.gone.hidden = q.holders.length > 0;
  row.gone.setAttribute('aria-label', `Remove ${q.queue}`);
  row.open.setAttribute('aria-label', `Show the keys of ${q.queue}`);
  const rest = q.holders.length - most;
  keyed(row.holders, rest > 0 ? [...q.holders.slice(0, most), { rest }] : q.holders, (h) => (h.rest ? '' : h.instance.id), createHolder, fillHolder);
  const blocked = q.blocked_keys || [];
  const keys = blocked.concat(q.refused_keys || []);
  keyed(row.blocked, keys, (k) => `${k.key} ${k.head}`, () => createBlocked(row), fillBlocked);
  row.holders.hidden = q.holders.length === 0;
  row.blocked.hidden = keys.length === 0;
  row.more.hidden = q.blocked <= blocked.length || blocked.length === 0;
  setText(row.more, `and ${count(q.blocked - blocked.length)} more blocked keys`);
}

const createHolder = () => ({ element: el('li', 'chip') });

function fillHolder(row, h) {
  if (h.rest) {
    setText(row.element, `and ${count(h.rest)} more`);
    return;
  }
  setText(row.element, `${h.instance.name}: ${h.asleep ? 'asleep' : plural(h.keys, 'key', 'keys')}`);
  setTitle(row.element, `instance ${h.instance.id} ${h.asleep ? 'has nothing to do' : `holds ${plural(h.keys, 'key', 'keys')}`}`);
}

function createBlocked(queue) {
  const about = () => ({ queue: queue.queue.queue, key: row.shown.key, id: row.shown.head, state: row.shown.state, detail: row.shown.reason });
  const key = button('', () => openKey(queue.queue.queue, row.shown.key, row.shown.head), 'link');
  const batch = button('', () => openMessage(queue.queue.queue, row.shown.head), 'link sub');
  const reason = el('p', 'sub reason');
  const retry = button('Retry…', () => askToAct('retry', about()));
  const skip = button('Skip…', () => askToAct('skip', about()));
  const past = anchor('quiet', 'History', 'history');
  const element = el('li', '', el('div', 'what', key, batch, reason), el('div', 'line', retry, skip, past));
  const row = { element, past, queue, key, batch, reason, retry, skip };
  return row;
}

function fillBlocked(row, k) {
  row.shown = k;
  setText(row.key, k.key);
  setTitle(row.key, `all messages of ${k.key}`);
  setText(row.batch, `${k.head}, ${k.state}`);
  setTitle(row.batch, 'everything about this message');
  setText(row.reason, `${k.reason || 'no reason given'} · ${plural(k.depth - 1, 'message waits', 'messages wait')} behind it`);
  row.past.href = link('history', 'queue', row.queue.queue.queue, ...k.key.split('/'));
  row.past.setAttribute('aria-label', `History of ${k.key}`);
  row.retry.setAttribute('aria-label', `Retry the message that blocks ${k.key}`);
  row.skip.setAttribute('aria-label', `Skip the message that blocks ${k.key}`);
}
