// The section of the shards: who is the primary, who follows it, and what is being done.

import { byId, count, el, keyed, plural, setText } from './dom.js';
import { askToChange, askToResume, askToWithdraw } from './change.js';
import { listWhole } from './listpages.js';
import { anchor, link, seek, when } from './pages.js';
import { createNode, fillNode, inOrder } from './nodes.js';
import { createLast, createPlan, fillLast, fillPlan, tickPlan } from './plan.js';
import { askToRemove } from './remove.js';

const list = byId('shards-list');
const few = 3; // shards that are all shown in full
const calm = 0; // what the server says of shards that need no attention
const severities = ['', 'minor', 'moving', 'major', 'severe'];

let state = null;
let offset = 0; // the store's clock minus this one's, in ms
const chosen = new Map(); // shards that were opened or closed by hand

// The state brings those in trouble first.
const shards = listWhole({
  id: 'shards',
  path: '/v1/shards',
  rows: (answer) => answer.shards,
  has: (s, text) => [s.shard, ...s.nodes.map((n) => n.address)].some((t) => t.toLowerCase().includes(text)),
  draw,
  words: ['shard', 'shards'],
  head: true,
});
when('shards', ([shard]) => {
  if (!shard) return;
  chosen.set(shard, true);
  shards.seek(state && state.list.some((s) => s.shard === shard) ? '' : shard);
});

export function news() {
  if (!state) return '';
  const { no_primary: none, blocked, unattended } = state.totals;
  return [none ? `${plural(none, 'shard', 'shards')} without primary` : blocked ? `${plural(blocked, 'shard', 'shards')} blocked` : '', unattended ? `${unattended} unattended` : ''].filter((t) => t).join(', ');
}

// update takes in what the server says.
export function update(s, now) {
  state = s;
  if (now) offset = new Date(now).getTime() - Date.now();
  const { totals } = s;
  const words = [[totals.no_primary, 'without a primary'], [totals.blocked, 'blocked'], [totals.unattended, 'unattended'], [totals.under_way, 'changing'], [totals.paused, 'paused']];
  keyed(byId('shards-warnings'), s.error ? [`The shards could not be read: ${s.error}. The figures shown are old.`] : [], (w) => w, () => ({ element: el('li') }),
    (row, w) => setText(row.element, w));
  shards.update({ list: s.list, total: totals.shards }, words.filter(([n]) => n).map(([n, word]) => `${count(n)} ${word}`).join(', '));
}

const storeNow = () => Date.now() + offset;

function draw(shown, summary) {
  byId('shards-empty').hidden = state.totals.shards > 0;
  list.hidden = shown.length === 0;
  setText(byId('shards-summary'), summary);
  keyed(list, shown, (s) => s.shard, create, fill);
  seek();
}

function create() {
  const toggle = button('toggle', '');
  const name = el('span', 'name');
  toggle.append(name);
  const at = el('span', 'sub at');
  const pips = el('span', 'pips');
  pips.setAttribute('aria-hidden', 'true');
  const over = button('quiet', 'Switch over…');
  const fail = button('quiet', 'Fail over…');
  const pause = button('quiet', 'Pause…');
  const gone = button('quiet', 'Remove…');
  const withdraw = button('quiet', 'Cancel the request…');
  const past = anchor('quiet', 'History', 'history');
  const says = el('ul', 'says');
  const plan = createPlan();
  const nodes = el('ul', 'nodes');
  const last = createLast();
  const body = el('div', 'topology', plan.element, nodes, last.element);
  const element = el('li', 'shard',
    el('div', 'head', el('h3', '', toggle), el('div', 'where', at, pips), el('div', 'line acts', over, fail, withdraw, pause, gone, past)),
    says, body);
  const row = { element, toggle, name, at, pips, over, fail, pause, gone, withdraw, past, says, plan, nodes, last, body };
  toggle.addEventListener('click', () => { chosen.set(row.shard.shard, row.body.hidden); fill(row, row.shard); });
  over.addEventListener('click', () => askToChange('switchover', row.shard));
  fail.addEventListener('click', () => askToChange('failover', row.shard));
  gone.addEventListener('click', () => askToRemove.shard(row.shard.shard));
  withdraw.addEventListener('click', () => askToWithdraw(row.shard));
  pause.addEventListener('click', () => (row.shard.paused ? askToResume(row.shard) : askToChange('pause', row.shard)));
  return row;
}

function button(kind, text) {
  const b = el('button', kind, text);
  b.type = 'button';
  return b;
}

function fill(row, s) {
  row.shard = s;
  const open = chosen.has(s.shard) ? chosen.get(s.shard) : state.totals.shards <= few || s.alarm !== calm;
  setText(row.name, s.shard);
  row.toggle.setAttribute('aria-expanded', String(open));
  setText(row.at, s.primary ? `${s.primary.address}, epoch ${s.primary.epoch}` : 'no primary');
  row.element.dataset.alarm = severities[s.alarm] || '';
  row.over.hidden = s.health !== 'fine' || s.nodes.length < 2;
  row.fail.hidden = s.health === 'fine' || s.health === 'none';
  row.over.disabled = row.fail.disabled = Boolean(s.plan || s.request);
  row.pause.hidden = s.health === 'none';
  row.gone.hidden = s.nodes.some((n) => n.agent_lives);
  row.gone.setAttribute('aria-label', `Remove ${s.shard}`);
  row.withdraw.hidden = !s.request;
  row.past.href = link('history', 'shard', s.shard);
  row.past.setAttribute('aria-label', `History of ${s.shard}`);
  setText(row.pause, s.paused ? 'Resume…' : 'Pause…');
  for (const [b, text] of [[row.over, 'Switch over'], [row.fail, 'Fail over'], [row.pause, s.paused ? 'Resume' : 'Pause']]) b.setAttribute('aria-label', `${text} ${s.shard}`);
  row.pips.hidden = open;
  if (!open) keyed(row.pips, inOrder(s), (n) => n.node.node_id, () => ({ element: el('span', 'pip') }), (pip, n) => { pip.element.dataset.state = n.state; });
  keyed(row.says, says(s), (t) => t.key, () => ({ element: el('li') }), (line, t) => {
    line.element.className = t.kind;
    setText(line.element, t.text);
  });
  row.says.hidden = !row.says.childElementCount;
  row.body.hidden = !open;
  if (!open) return;
  keyed(row.nodes, inOrder(s), (n) => n.node.node_id, () => createNode(() => row.shard), fillNode);
  fillPlan(row.plan, s, storeNow);
  fillLast(row.last, s);
}

// says is what an operator has to know, in words.
function says(s) {
  const out = [];
  const add = (key, kind, text) => out.push({ key, kind, text });
  const primary = s.nodes.find((n) => n.is_primary);
  const label = primary ? primary.address : 'the primary';
  if (s.blocked) add('blocked', 'bad', `Blocked: ${s.blocked}`);
  else if (s.health === 'unattended') add('health', 'bad', `Unattended: ${label} works, but its agent does not hold the shard, so it would not be replaced: ${s.reason}. Start its agent again.`);
  else if (s.health === 'doubtful') add('health', 'warn', `In doubt whether ${label} is lost: ${s.reason}.`);
  else if (s.health === 'failed') add('health', 'bad', `${label} is lost: ${s.reason}.`);
  if (!s.primary && !s.plan && !s.blocked) add('why', 'bad', `No primary: ${(s.why || '').replace(/^shard: no primary: /, '')}.`);
  if (s.request) add('request', 'warn', `A ${s.request.kind} was asked for by ${s.request.by}; no agent has started it yet.`);
  if (s.paused) add('paused', 'warn', `Paused by ${s.paused.by}${s.paused.reason ? `: ${s.paused.reason}` : ''}. It does not fail over by itself.`);
  return out;
}

// tick moves what moves by itself between two messages.
export function tick() {
  for (const row of (list.rows || new Map()).values()) if (!row.body.hidden) tickPlan(row.plan, storeNow());
}
