// The nodes of a shard, as a tree: the primary, and below it those that follow it.

import { button, coarse, count, el, figureBoxes, plural, setText, setTitle } from './dom.js';
import { askToForget } from './change.js';

// inOrder lists the nodes with their depth in the tree and the state of their line: the primary
// first, below each node those that follow it, and then those outside.
export function inOrder(shard) {
  const out = [];
  const seen = new Set();
  const add = (node, depth) => {
    seen.add(node.node_id);
    out.push({ node, depth, state: stateOf(node), line: depth ? lineOf(node) : '', last: false });
    const below = shard.nodes.filter((n) => n.primary_node_id === node.node_id && !seen.has(n.node_id));
    for (const n of below) if (!seen.has(n.node_id)) add(n, Math.min(depth + 1, 3));
  };
  for (const n of shard.nodes) if (n.is_primary) add(n, 0);
  const root = out.length > 0;
  // A member that lost its way belongs below the primary all the same, on a line that is down.
  for (const n of shard.nodes) if (!seen.has(n.node_id)) add(n, root && n.member ? 1 : 0);
  out.forEach((n, i) => {
    const next = out.slice(i + 1).find((other) => other.depth <= n.depth);
    n.last = !next || next.depth < n.depth;
  });
  return out;
}

function lineOf(n) {
  if (!n.agent_lives || n.condition !== 'up' || !n.link_up) return n.syncing ? 'copying' : 'down';
  return n.syncing ? 'copying' : 'up';
}

function stateOf(n) {
  if (n.condition && n.condition !== 'up' && n.condition !== 'loading') return 'bad';
  if (!n.role || !n.agent_lives || n.trouble || n.condition === 'loading' || (n.link_up === false && !n.is_primary)) return 'low';
  return 'good';
}

const figures = [
  ['Txn', (n) => (n.role ? count(n.txn_id) : '–'), () => 'transaction id; on Redis the replication offset in bytes'],
  ['Lag', (n) => (n.is_primary || !n.same_lineage ? '–' : count(n.lag)), () => 'how far the primary was ahead at its last report, in the same unit'],
  ['Lineage', (n) => (n.lineage ? n.lineage.slice(0, 8) : '–'), (n) => (n.lineage ? `${n.lineage}: the history that its data belongs to` : '')],
  ['Fence', (n) => n.fence || '–', (n) => ({ open: 'it accepts writes as long as it is the primary', armed: 'it refuses writes by itself once no replica acknowledges', closed: 'it refuses writes' }[n.fence] || '')],
  ['Epoch', (n) => (n.role ? String(n.epoch) : '–'), () => 'the highest that its agent has seen'],
  ['Agent', (n) => (!n.role ? '–' : n.agent_lives ? 'alive' : `silent ${coarse(n.age_ms)}`), (n) => (n.agent_address ? `at ${n.agent_address}` : '')],
];

export function createNode(shard) {
  const name = el('strong', 'name');
  const sub = el('span', 'sub');
  const values = figureBoxes(figures);
  const trouble = el('p', 'trouble');
  const forget = button('Forget…', () => askToForget(shard(), row.node));
  const pip = el('span', 'pip');
  pip.setAttribute('aria-hidden', 'true');
  const element = el('li', 'node', el('div', 'line who', pip, el('div', '', name, sub)), el('dl', 'figures', ...values.map((dd) => dd.parentElement)), forget, trouble);
  const row = { element, pip, name, sub, values, trouble, forget };
  return row;
}

export function fillNode(row, { node: n, depth, state, line, last }) {
  row.node = n;
  const { dataset } = row.element;
  dataset.depth = String(depth);
  dataset.line = line;
  dataset.last = String(last);
  row.pip.dataset.state = state;
  setText(row.name, n.address);
  setTitle(row.name, `${n.address}, node ${n.node_id}${n.private_address !== n.address ? `, between nodes ${n.private_address}` : ''}`);
  setText(row.sub, [roleOf(n), linkOf(n), n.node_id.slice(0, 8), n.version || n.engine].filter((t) => t).join(' · '));
  setTitle(row.sub, `${plural(n.keys, 'key', 'keys')}, priority ${n.priority}`);
  figures.forEach(([, value, meaning], i) => {
    setText(row.values[i], value(n));
    setTitle(row.values[i].parentElement, meaning(n));
  });
  row.values[5].classList.toggle('bad-value', Boolean(n.role) && !n.agent_lives);
  const condition = n.condition && n.condition !== 'up' ? `${conditions[n.condition] || n.condition}` : '';
  const text = [condition, n.trouble].filter((t) => t).join(': ');
  setText(row.trouble, text);
  row.trouble.hidden = !text;
  row.forget.hidden = n.is_primary || n.agent_lives;
  row.forget.setAttribute('aria-label', `Forget ${n.address}`);
}

const conditions = { loading: 'It loads its data', silent: 'It does not answer', down: 'It is down', refused: 'Its agent keeps it out' };

function roleOf(n) {
  if (!n.role) return 'retired';
  if (n.is_primary) return 'primary';
  if (n.role === 'primary') return 'deposed primary';
  return n.member ? 'replica' : 'joining';
}

function linkOf(n) {
  if (n.is_primary || n.link_up === undefined) return '';
  return n.syncing ? 'copying' : n.link_up ? 'link up' : 'link down';
}
