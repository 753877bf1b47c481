// The questions before a shard is changed.

import { byId, duration, el, say } from './dom.js';
import { question } from './act.js';
import { untilPrimary } from './plan.js';
import { ask } from './stream.js';

const dialog = byId('change');
const to = byId('change-to');
const force = byId('change-force');
const reason = byId('change-reason');
const ok = byId('change-ok');
const wait = '15s'; // for the end of what was asked for

let asked = null;

const kinds = {
  switchover: {
    title: (s) => `Switch ${s.shard} over?`,
    text: 'Writes wait for a moment until the new primary has them all. If it cannot be done in time, everything goes back to where it was. Nothing is lost either way.',
    ok: 'Switch over',
    act: async (s) => plan(s, 'switchover', { to: to.value }),
  },
  failover: {
    title: (s) => `Replace the primary of ${s.shard}?`,
    text: 'What the old primary has and no replica has is lost. Make sure that it is dead, or that no client reaches it.',
    ok: 'Fail over',
    danger: true,
    act: async (s) => plan(s, 'failover', { to: to.value, force: force.checked }),
  },
  pause: {
    title: (s) => `Pause ${s.shard}?`,
    text: 'It does not fail over by itself until it is resumed. What people ask for is done nevertheless.',
    ok: 'Pause',
    act: async (s) => {
      await send(s, 'POST', 'pause', { reason: reason.value.trim() });
      return `Paused ${s.shard}.`;
    },
  },
};

// askToChange asks before a switchover, failover or pause.
export function askToChange(kind, shard) {
  asked = { kind, shard };
  const k = kinds[kind];
  byId('change-title').textContent = k.title(shard);
  byId('change-text').textContent = k.text;
  byId('change-choice').hidden = kind === 'pause';
  byId('change-forced').hidden = kind !== 'failover';
  byId('change-why').hidden = kind !== 'pause';
  force.checked = false;
  reason.value = '';
  const best = el('option', '', 'The best one');
  best.value = '';
  to.replaceChildren(best, ...shard.nodes.filter((n) => !n.is_primary).map((n) => {
    const option = el('option', '', `${n.address} (${n.node_id.slice(0, 8)})`);
    option.value = n.node_id;
    return option;
  }));
  ok.textContent = k.ok;
  ok.className = k.danger ? 'danger' : 'primary';
  byId('change-error').textContent = '';
  dialog.showModal();
}

export const askToResume = (shard) => question({
  title: `Resume ${shard.shard}?`,
  what: '',
  text: 'It fails over by itself again when its primary is over.',
  ok: 'Resume',
  act: async () => {
    await send(shard, 'POST', 'resume', {});
    return `Resumed ${shard.shard}.`;
  },
});

export const askToForget = (shard, node) => question({
  title: `Forget ${node.address}?`,
  what: `Node ${node.node_id} of shard ${shard.shard}`,
  text: 'It is not a part of the shard any more. If its agent is started again, it joins anew.',
  ok: 'Forget it',
  danger: true,
  act: async () => {
    await ask(`${path(shard)}/nodes/${encodeURIComponent(node.node_id)}?by=${encodeURIComponent(by)}`, { method: 'DELETE' });
    return `Forgot ${node.address} of ${shard.shard}.`;
  },
});

const by = 'somebody at the page';
const path = (shard) => `/v1/shards/${encodeURIComponent(shard.shard)}`;

const send = (shard, method, verb, body) => ask(`${path(shard)}/${verb}`, {
  method,
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ by, ...body }),
});

async function plan(shard, kind, body) {
  const said = await (await send(shard, 'POST', `${kind}?wait=${wait}`, body)).json();
  if (said.state !== 'done') return `The ${kind} of ${shard.shard} is under way.`;
  const node = shard.nodes.find((n) => n.node_id === said.plan.to);
  return `${node ? node.address : 'Another node'} is the primary of ${shard.shard} now, after ${duration(untilPrimary(said.plan))}.`;
}

byId('change-cancel').addEventListener('click', () => dialog.close());

byId('change-form').addEventListener('submit', async (e) => {
  e.preventDefault();
  const { kind, shard } = asked;
  ok.disabled = true;
  byId('change-error').textContent = '';
  try {
    const said = await kinds[kind].act(shard);
    dialog.close();
    say(said);
  } catch (err) {
    byId('change-error').textContent = err.message;
  } finally {
    ok.disabled = false;
  }
});
