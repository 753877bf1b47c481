// A change of primary: as it goes on, and the latest that ended.

import { duration, el, keyed, setText, setTitle, timeOf } from './dom.js';

const courses = {
  failover: ['detaching', 'promoting', 'following'],
  switchover: ['pausing', 'catching', 'promoting', 'following'],
  return: ['promoting', 'following'],
  repair: ['following'],
};

const titles = { failover: 'Failover', switchover: 'Switchover', return: 'Back to where it was', repair: 'Replicas are pointed at the primary' };
const addressOf = (shard, id) => {
  const node = shard.nodes.find((n) => n.node_id === id);
  return node ? node.address : (id || '').slice(0, 8) || '?';
};

const way = (shard, p) => (p.from && p.to && p.from !== p.to ? `${addressOf(shard, p.from)} → ${addressOf(shard, p.to)}` : p.to ? `→ ${addressOf(shard, p.to)}` : p.from ? `from ${addressOf(shard, p.from)}` : '');

export function createPlan() {
  const title = el('strong');
  const reason = el('span', 'sub');
  const phases = el('ol', 'phases');
  return { element: el('div', 'plan', title, reason, phases), title, reason, phases };
}

export function fillPlan(row, shard, now) {
  const p = shard.plan;
  row.plan = p;
  row.element.hidden = !p;
  if (!p) return;
  setText(row.title, [`${titles[p.kind] || p.kind} under way`, way(shard, p), `epoch ${p.epoch}`].filter((t) => t).join(' · '));
  setText(row.reason, `${p.reason}; by the agent of ${addressOf(shard, p.by_node)}`);
  const done = (p.steps || []).map((s, i) => ({ key: `${i} ${s.phase}`, phase: s.phase, state: 'done', took: s.took_ms, note: s.note || '' }));
  const course = courses[p.kind] || [];
  const rest = course.slice(course.indexOf(p.phase) + 1);
  const steps = [...done, { key: `${done.length} ${p.phase}`, phase: p.phase, state: 'now', note: '' }, ...rest.map((phase) => ({ key: `then ${phase}`, phase, state: 'then', note: '' }))];
  keyed(row.phases, steps, (s) => s.key, () => ({ element: el('li') }), (line, s) => {
    line.step = s;
    line.element.dataset.state = s.state;
    if (s.state === 'now') line.element.setAttribute('aria-current', 'step');
    else line.element.removeAttribute('aria-current');
    setTitle(line.element, s.note);
  });
  tickPlan(row, now());
}

// tickPlan counts the time of the phase that goes on, by the store's clock.
export function tickPlan(row, now) {
  const p = row.plan;
  if (!p) return;
  const before = (p.steps || []).reduce((sum, s) => sum + s.took_ms, 0);
  const going = Math.max(0, now - new Date(p.began).getTime() - before);
  for (const line of (row.phases.rows || new Map()).values()) {
    const { step } = line;
    setText(line.element, step.state === 'done' ? `${step.phase} ${duration(step.took)}` : step.state === 'now' ? `${step.phase} for ${duration(going)}` : step.phase);
  }
}

// untilPrimary is how long a change took until the shard had a primary again, in ms.
export const untilPrimary = (p) => (p.steps || []).filter((s) => s.phase !== 'following').reduce((sum, s) => sum + s.took_ms, 0);

export function createLast() {
  const title = el('strong');
  const when = el('span', 'sub');
  const bar = el('div', 'steps');
  bar.setAttribute('aria-hidden', 'true');
  const legend = el('ol', 'legend');
  const reason = el('p', 'sub');
  return { element: el('div', 'last', el('p', '', title, ' ', when), bar, legend, reason), title, when, bar, legend, reason };
}

export function fillLast(row, shard) {
  const p = shard.last;
  row.element.hidden = !p;
  if (!p) return;
  const steps = (p.steps || []).map((s, i) => ({ key: `${p.epoch} ${i}`, ...s }));
  const name = (titles[p.kind] || p.kind).toLowerCase();
  setText(row.title, p.failed ? `Latest: ${name} failed` : p.kind === 'repair' ? `Latest: ${name}` : `Latest: ${name}, new primary after ${duration(untilPrimary(p))}`);
  row.element.classList.toggle('failed', Boolean(p.failed));
  setText(row.when, [way(shard, p), timeOf(p.ended || p.began), `epoch ${p.epoch}`].filter((t) => t).join(' · '));
  row.bar.hidden = row.legend.hidden = steps.length === 0;
  keyed(row.bar, steps, (s) => s.key, () => ({ element: el('span') }), (part, s) => {
    part.element.dataset.phase = s.phase;
    part.element.style.flexGrow = String(Math.max(1, s.took_ms));
  });
  keyed(row.legend, steps, (s) => s.key, () => ({ element: el('li') }), (part, s) => {
    part.element.dataset.phase = s.phase;
    setText(part.element, `${s.phase} ${duration(s.took_ms)}`);
    setTitle(part.element, s.note || '');
  });
  setText(row.reason, p.failed || p.reason);
}
