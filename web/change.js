// The questions before a shard is changed.

import { duration } from './dom.js';
import { post, question } from './act.js';
import { untilPrimary } from './plan.js';
import { ask } from './stream.js';

const wait = '15s'; // for the end of what was asked for

const path = (shard) => `/v1/shards/${encodeURIComponent(shard.shard)}`;

const kinds = {
  switchover: {
    title: (s) => `Switch ${s.shard} over?`,
    text: 'Writes wait for a moment until the new primary has them all. If that takes too long, the switchover is rolled back. Nothing is lost either way.',
    ok: 'Switch over',
    fields: (s) => [choice(s)],
    act: (s, { to, by }) => plan(s, 'switchover', { to, by }),
  },
  failover: {
    title: (s) => `Replace the primary of ${s.shard}?`,
    text: 'Writes that only the old primary has are lost. Make sure that it is dead, or that no client reaches it.',
    ok: 'Fail over',
    danger: true,
    fields: (s) => [choice(s), { name: 'force', label: 'Force it, even if that loses writes', kind: 'check' }],
    act: (s, { to, force, by }) => plan(s, 'failover', { to, force, by }),
  },
  pause: {
    title: (s) => `Pause ${s.shard}?`,
    text: 'It does not fail over by itself until it is resumed. Requests by operators are still carried out.',
    ok: 'Pause',
    fields: () => [{ name: 'reason', label: 'Why? Others see it.', most: 150 }],
    act: async (s, { reason, by }) => {
      await post(`${path(s)}/pause`, { reason, by });
      return `Paused ${s.shard}.`;
    },
  },
};

const choice = (shard) => ({
  name: 'to', label: 'Which node becomes the primary?', kind: 'select',
  options: [['', 'The best one'], ...shard.nodes.filter((n) => !n.is_primary).map((n) => [n.node_id, `${n.address} (${n.node_id.slice(0, 8)})`])],
});

// askToChange asks before a switchover, failover or pause.
export function askToChange(kind, shard) {
  const k = kinds[kind];
  question({ title: k.title(shard), text: k.text, ok: k.ok, danger: k.danger, fields: k.fields(shard), act: (values) => k.act(shard, values) });
}

export const askToResume = (shard) => question({
  title: `Resume ${shard.shard}?`,
  text: 'It fails over by itself again when its primary is lost.',
  ok: 'Resume',
  act: async ({ by }) => {
    await post(`${path(shard)}/resume`, { by });
    return `Resumed ${shard.shard}.`;
  },
});

// askToWithdraw takes back a request with which no agent has begun.
export const askToWithdraw = (shard) => question({
  title: `Cancel the ${shard.request.kind} of ${shard.shard}?`,
  what: `Asked for by ${shard.request.by}.`,
  text: 'No agent has started it yet. Once one has, it cannot be cancelled.',
  ok: 'Cancel it',
  danger: true,
  act: async ({ by }) => {
    await ask(`${path(shard)}/requests/${encodeURIComponent(shard.request.id)}?by=${encodeURIComponent(by)}`, { method: 'DELETE' });
    return `Cancelled the ${shard.request.kind} of ${shard.shard}.`;
  },
});

export const askToForget = (shard, node) => question({
  title: `Forget ${node.address}?`,
  what: `Node ${node.node_id} of shard ${shard.shard}`,
  text: 'It is no longer part of the shard. If its agent starts again, it joins again.',
  ok: 'Forget it',
  danger: true,
  act: async ({ by }) => {
    await ask(`${path(shard)}/nodes/${encodeURIComponent(node.node_id)}?by=${encodeURIComponent(by)}`, { method: 'DELETE' });
    return `Forgot ${node.address} of ${shard.shard}.`;
  },
});

async function plan(shard, kind, body) {
  const said = await (await post(`${path(shard)}/${kind}?wait=${wait}`, body)).json();
  if (said.state !== 'done') return `The ${kind} of ${shard.shard} is in progress.`;
  const node = shard.nodes.find((n) => n.node_id === said.plan.to);
  return `${node ? node.address : 'Another node'} is the primary of ${shard.shard} now, after ${duration(untilPrimary(said.plan))}.`;
}
