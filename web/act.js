// The question before a person acts.

import { byId, say } from './dom.js';
import { ask } from './stream.js';

const dialog = byId('act');
const ok = byId('act-ok');
let asked = null;

// question asks before it does; act does it and returns what to say about it, and
// done is called when it was done.
export function question({ title, what, text, ok: word, danger = false, act, done = () => {} }) {
  asked = { act, done };
  byId('act-title').textContent = title;
  byId('act-what').textContent = what;
  byId('act-text').textContent = text;
  byId('act-error').textContent = '';
  ok.textContent = word;
  ok.className = danger ? 'danger' : 'primary';
  dialog.showModal();
}

const words = {
  retry: { title: 'Retry', ok: 'Retry', done: 'Retried', danger: false },
  skip: { title: 'Skip', ok: 'Skip', done: 'Skipped', danger: true },
  cancel: { title: 'Cancel', ok: 'Cancel the batch', done: 'Cancelled', danger: true },
};

const over = ['invalid', 'failed', 'cancelled'];

function consequence(action, b) {
  if (action === 'cancel') return 'It was never sent, and will not be.';
  if (action === 'skip') return 'It is not delivered. The next batch of its key goes on without it, whether that makes sense or not.';
  if (b.state === 'unknown') return 'Nobody knows whether the target has it. If it has, and does not recognise the batch’s id, it will act twice.';
  if (over.includes(b.state) && b.blocks === false) return 'It had stepped aside: it goes to the end of its key, behind batches that were enqueued after it.';
  return 'It is sent again at once, its attempts counted anew.';
}

// askToAct is the question about a batch; b has queue, key, id, state, detail.
export function askToAct(action, b, done = () => {}) {
  const w = words[action];
  question({
    title: `${w.title} batch ${b.id}?`,
    what: `Key ${b.key} of queue ${b.queue}, ${b.state}${b.detail ? `: ${b.detail}` : ''}`,
    text: consequence(action, b),
    ok: w.ok,
    danger: w.danger,
    act: async () => {
      await ask(`/v1/queues/${encodeURIComponent(b.queue)}/batches/${encodeURIComponent(b.id)}/${action}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ by: 'somebody at the page' }),
      });
      return `${w.done} batch ${b.id} of key ${b.key}.`;
    },
    done,
  });
}

byId('act-cancel').addEventListener('click', () => dialog.close());

byId('act-form').addEventListener('submit', async (e) => {
  e.preventDefault();
  const { act, done } = asked;
  ok.disabled = true;
  try {
    const said = await act();
    dialog.close();
    say(said);
    done();
  } catch (err) {
    byId('act-error').textContent = err.message;
  } finally {
    ok.disabled = false;
  }
});
