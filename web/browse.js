// The window in which one looks closer. It leads from a queue to its keys, from a
// key to its batches, and from a batch to all that happened to it; other sections
// open it for what is theirs.

import { button, byId, coarse, count, el, facts, setText, timeOf } from './dom.js';
import { askToAct } from './act.js';
import { anchor, leave } from './pages.js';
import { ask, get } from './stream.js';

const dialog = byId('browse');
const body = byId('browse-body');
const path = byId('browse-path');
const page = 100;
const before = 5; // how many final messages are shown before the one whose turn it is
const mostText = 20_000;

const aboutQueue = 'Keys and messages of a queue';

let view = null; // what is shown: a function that shows it again
let turn = 0; // counts the views, so that an answer that comes late is not shown

export const openQueue = (queue) => open(aboutQueue, [[queue, () => openQueue(queue)]], () => showKeys(queue));

// openKey shows the batches of a key, those around the named one first.
export const openKey = (queue, key, id) => open(
  aboutQueue, [[queue, () => openQueue(queue)], [key, () => openKey(queue, key, id)]], () => showMessages(queue, key, id));

export const openMessage = (queue, id) => open(
  aboutQueue, [[queue, () => openQueue(queue)], [id, () => openMessage(queue, id)]], () => showMessage(queue, id));

byId('browse-close').addEventListener('click', () => dialog.close());
byId('browse-refresh').addEventListener('click', () => show());
dialog.addEventListener('close', () => {
  if (dialog.open) return; // it was opened again meanwhile
  view = null;
  turn++;
  leave();
});

// open shows what a function returns, the elements or a promise of them. The steps
// that lead there are names and what goes there.
export function open(about, steps, what) {
  dialog.setAttribute('aria-label', about);
  const parts = steps.map(([text, go], i) => {
    const step = button(text, go, 'link');
    if (i === steps.length - 1) step.setAttribute('aria-current', 'page');
    return el('li', '', step);
  });
  path.replaceChildren(...parts);
  view = what;
  body.replaceChildren(el('p', 'muted', 'One moment…'));
  if (!dialog.open) dialog.showModal();
  path.lastElementChild.firstElementChild.focus(); // what was clicked is gone
  return show();
}

// show asks for what the window shows, and draws it.
export async function show() {
  const mine = ++turn;
  try {
    const content = await view();
    if (mine === turn) body.replaceChildren(...content);
  } catch (err) {
    if (mine === turn) body.replaceChildren(el('p', 'bad-text', err.message));
  }
}

const at = (queue, rest = '') => `/v1/queues/${encodeURIComponent(queue)}${rest}`;

// table makes a table whose first column leads somewhere.
export function table(heads, rows, go) {
  const body = el('tbody', '', ...rows.map(({ cells, item, className }) => {
    const link = button(cells[0], () => go(item), 'link');
    return el('tr', className || '', el('td', '', link), ...cells.slice(1).map((c, i) => {
      const td = el('td', '', c === undefined ? '' : String(c));
      td.dataset.head = heads[i + 1];
      return td;
    }));
  }));
  return el('table', '', el('thead', '', el('tr', '', ...heads.map((h) => el('th', '', h)))), body);
}

// paged shows a page of a list, and a button for the next.
export function paged(content, next, load) {
  if (!next) return content;
  const more = button('More', () => {
    view = () => load(next);
    show();
  });
  return [...content, more];
}

async function showKeys(queue, after = '') {
  const { keys, next } = await get(at(queue, `/keys?limit=${page}&after=${encodeURIComponent(after)}`));
  const later = after ? [] : await scheduled(queue);
  if (keys.length === 0) return [el('p', 'muted', after ? 'No more keys with work.' : 'No key has work.'), ...later];
  const rows = keys.map((k) => ({
    item: k,
    className: k.blocked ? 'bad' : '',
    cells: [k.key, count(k.depth), k.blocked ? `${k.state}, blocked` : k.state, coarse(k.waiting_ms), k.holder ? k.holder.name : '', k.reason],
  }));
  return paged([table(['Key', 'Waiting', 'Its turn', 'Since', 'Held by', 'Reason'], rows, (k) => openKey(queue, k.key, k.head)), ...later], next, (n) => showKeys(queue, n));
}

// scheduled lists messages that are in no key yet, because their time has not come.
async function scheduled(queue, cursor = '') {
  const { messages, next } = await get(at(queue, `/messages?${new URLSearchParams({ state: 'scheduled', limit: page, after: cursor })}`));
  if (messages.length === 0) return [];
  const rows = messages.map((b) => ({ item: b, cells: [b.id, b.key, new Date(b.not_before).toLocaleString(), `${count(b.size)} B`] }));
  const list = [el('h3', '', 'Scheduled'), table(['Message', 'Key', 'Not before', 'Size'], rows, (b) => openMessage(queue, b.id))];
  return paged(list, next, (n) => scheduled(queue, n));
}

async function showMessages(queue, key, id, cursor = null) {
  const query = new URLSearchParams({ key, limit: page, after: cursor || `${encodeURIComponent(key)}/${await startAt(queue, id)}` });
  const { messages, next } = await get(at(queue, `/messages?${query}`));
  if (messages.length === 0) return [el('p', 'muted', 'This key has no messages here.')];
  const rows = messages.map((b) => ({
    item: b,
    className: b.blocks ? 'bad' : '',
    cells: [b.id, b.seq, b.blocks ? `${b.state}, blocks` : b.state, b.attempts || '', b.code || '', `${count(b.size)} B`, timeOf(b.enqueued), b.detail],
  }));
  const heads = ['Message', 'Number', 'State', 'Attempts', 'Code', 'Size', 'Enqueued', 'Detail'];
  return paged([table(heads, rows, (b) => openMessage(queue, b.id))], next, (n) => showMessages(queue, key, id, n));
}

// startAt is the number after which the list of a key begins, so that what is over
// does not hide what waits.
async function startAt(queue, id) {
  if (!id) return 0;
  const b = await get(at(queue, `/messages/${encodeURIComponent(id)}`)).catch(() => ({ seq: 0 }));
  return Math.max(0, b.seq - 1 - before);
}

async function showMessage(queue, id) {
  const b = await get(at(queue, `/messages/${encodeURIComponent(id)}`));
  const key = button(b.key, () => openKey(queue, b.key, b.id), 'link');
  const about = facts([
    ['State', b.blocks ? `${b.state}, blocks its key` : b.state], ['Key', key], ['Number', b.not_before ? '' : String(b.seq)], ['Attempts', String(b.attempts)],
    ['Code', b.code ? String(b.code) : ''], ['Payload', `${count(b.size)} bytes of ${b.content_type}`], ['Enqueued', timeOf(b.enqueued)],
    ['Not before', b.not_before ? new Date(b.not_before).toLocaleString() : ''],
    ['Begun', b.begun ? timeOf(b.begun) : ''], ['Ended', b.ended ? timeOf(b.ended) : ''], ['Status at', b.link || ''],
  ]);
  const trail = el('ol', 'events card', ...(b.trail || []).map(step));
  const shown = el('pre', '');
  shown.hidden = true;
  return [about, el('p', 'sub', b.detail || ''), actions(b, shown), shown, el('h3', '', 'What happened to it'), trail];
}

function step(s) {
  const aside = [s.attempt ? `attempt ${s.attempt}` : '', s.code ? `code ${s.code}` : '', s.term ? `term ${s.term}` : ''].filter((t) => t).join(', ');
  const kind = { committed: 'taken', invalid: 'lapsed', failed: 'lapsed', unknown: 'asked', delayed: 'asked' }[s.state] || '';
  const time = el('time', '', timeOf(s.at));
  time.dateTime = s.at;
  time.title = new Date(s.at).toLocaleString();
  return el('li', `event ${kind}`, time, el('div', 'what', el('strong', '', s.state), el('span', '', aside), el('span', 'sub', s.detail || '')));
}

// actions are what a person may do now; the server refuses the rest.
function actions(b, shown) {
  const waits = b.blocks || b.state === 'delayed' || b.state === 'unknown';
  const aside = ['invalid', 'failed', 'cancelled'].includes(b.state);
  const can = { retry: waits || aside, skip: waits, cancel: b.state === 'scheduled' || b.state === 'queued' && b.attempts === 0 || b.blocks && ['pending', 'valid'].includes(b.state) };
  const words = { retry: 'Retry…', skip: 'Skip…', cancel: 'Cancel…' };
  const buttons = Object.keys(can).filter((a) => can[a]).map((a) => button(words[a], () => askToAct(a, b, show)));
  const look = button('Show the payload', () => showPayload(b, look, shown));
  look.disabled = b.size === 0;
  return el('div', 'line', ...buttons, look, anchor('quiet', 'History of its key', 'history', 'queue', b.queue, ...b.key.split('/')));
}

async function showPayload(b, look, shown) {
  look.disabled = true;
  try {
    const answer = await ask(at(b.queue, `/messages/${encodeURIComponent(b.id)}/payload`), { signal: AbortSignal.timeout(60_000) }); // it may be long, and has a minute
    const bytes = new Uint8Array(await answer.arrayBuffer());
    setText(shown, readable(bytes) + (bytes.length > mostText ? `\n… and ${count(bytes.length - mostText)} bytes more` : ''));
  } catch (err) {
    setText(shown, err.message);
  }
  shown.hidden = false;
}

// readable is text as it is, and anything else in hexadecimal.
function readable(bytes) {
  const part = bytes.subarray(0, mostText);
  const text = new TextDecoder().decode(part);
  if (![...text].some((c) => c === '\ufffd' || (c < ' ' && !'\t\n\r'.includes(c)))) return text;
  return Array.from(part.subarray(0, 1024), (n) => n.toString(16).padStart(2, '0')).join(' ') + (bytes.length > 1024 ? ' …' : '');
}
