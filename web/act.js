// The one way in which a person acts: a window says what will happen, asks who it is,
// does it, and says how it went.

import { byId, el, say } from './dom.js';
import { ask } from './stream.js';

const dialog = byId('act');
const ok = byId('act-ok');
const fields = byId('act-fields');
const name = byId('act-by');
const remembered = 'understudy-name'; // in this tab, until it is closed
let asked = null;

// question asks before it does. act gets what was filled in by the names of the fields,
// and by; it does it and returns what to say about it. done is called when it was done.
// A field is a name, a label and a kind: select (with options, pairs of value and text),
// text or check. What cannot be signed has signed: false.
export function question({ title, what = '', text = '', ok: word, danger = false, signed = true, fields: wanted = [], act, done = () => {} }) {
  asked = { act, done, inputs: wanted.map(field), signed };
  byId('act-title').textContent = title;
  byId('act-what').textContent = what;
  byId('act-what').hidden = !what;
  byId('act-text').textContent = text;
  byId('act-error').textContent = '';
  byId('act-who').hidden = !signed;
  name.value = sessionStorage.getItem(remembered) || '';
  fields.replaceChildren(...asked.inputs.map((f) => f.box));
  ok.textContent = word;
  ok.className = danger ? 'danger' : 'primary';
  busy(false);
  dialog.showModal();
  const first = asked.inputs.find((f) => !f.input.disabled);
  (first ? first.input : signed && !name.value ? name : ok).focus();
}

function field({ name: id, label, kind = 'text', options = [], value = '', most = 60 }) {
  const input = el(kind === 'select' ? 'select' : 'input');
  input.id = `act-field-${id}`;
  const words = el('label', kind === 'check' ? 'line check' : '', kind === 'check' ? input : '', kind === 'check' ? el('span', '', label) : label);
  words.htmlFor = input.id;
  if (kind === 'select') {
    input.append(...options.map(([v, text]) => {
      const option = el('option', '', text);
      option.value = v;
      return option;
    }));
    input.value = value;
    input.disabled = options.length < 2;
  } else if (kind === 'check') {
    input.type = 'checkbox';
  } else {
    input.type = 'text';
    input.maxLength = most;
    input.autocomplete = 'off';
    input.value = value;
  }
  return { id, input, box: el('div', 'field', words, kind === 'check' ? '' : input), read: () => (kind === 'check' ? input.checked : input.value.trim()) };
}

// busy: it is being done. The window may be closed meanwhile; what comes of it is said then.
function busy(is) {
  ok.disabled = is;
  byId('act-cancel').textContent = is ? 'Close' : 'Leave it';
  dialog.setAttribute('aria-busy', String(is));
}

// post sends what was filled in.
export const post = (path, body) => ask(path, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify(body),
});

byId('act-cancel').addEventListener('click', () => dialog.close());

byId('act-form').addEventListener('submit', async (e) => {
  e.preventDefault();
  const mine = asked;
  const { act, done, inputs, signed } = mine;
  const here = () => asked === mine && dialog.open;
  const values = Object.fromEntries(inputs.map((f) => [f.id, f.read()]));
  if (signed) {
    const who = name.value.trim();
    if (who) sessionStorage.setItem(remembered, who);
    else sessionStorage.removeItem(remembered);
    values.by = who || 'an unnamed user of the page';
  }
  busy(true);
  byId('act-error').textContent = '';
  try {
    const said = await act(values);
    if (here()) dialog.close();
    say(said);
    done();
  } catch (err) {
    if (here()) byId('act-error').textContent = err.message;
    else say(err.message);
  } finally {
    if (asked === mine) busy(false);
  }
});

const words = {
  retry: { title: 'Retry', ok: 'Retry', done: 'Retried', danger: false },
  skip: { title: 'Skip', ok: 'Skip', done: 'Skipped', danger: true },
  cancel: { title: 'Cancel', ok: 'Cancel the message', done: 'Cancelled', danger: true },
};

const over = ['invalid', 'failed', 'cancelled'];

// mayHaveIt: the target may have the message. One that was skipped or cancelled while that was unknown still counts; the
// server refuses what this page cannot see.
function mayHaveIt(b) {
  const [before, last] = (b.trail || []).slice(-2);
  return ['unknown', 'pending', 'valid'].includes(b.state) || Boolean(last) && ['skip', 'cancel'].includes(last.action)
    && ['submitting', 'pending', 'valid', 'unknown'].includes(before.state);
}

function consequence(action, b) {
  if (action !== 'retry' && mayHaveIt(b)) return 'The next message of its key goes on. The target may still act on this one, and then after later messages of its key.';
  if (action === 'cancel') return 'It was never sent and will not be sent.';
  if (action === 'skip') return 'It is not delivered. The next message of its key goes on without it, whether that makes sense or not.';
  if (mayHaveIt(b)) return 'The target may have it. If it does and does not deduplicate by message ID, it acts on it twice, which can end a Scabbard circuit. Look for it at the target first.';
  if (over.includes(b.state) && b.blocks === false) return 'It was dead-lettered: it goes to the end of its key, behind messages that were enqueued after it.';
  return 'It is sent again at once, with its attempt count reset.';
}

// askToAct is the question about a batch; b has queue, key, id, state, detail.
export function askToAct(action, b, done = () => {}) {
  const w = words[action];
  const uncertain = action === 'retry' && mayHaveIt(b);
  question({
    title: `${w.title} message ${b.id}?`,
    what: `Key ${b.key} of queue ${b.queue}, ${b.state}${b.detail ? `: ${b.detail}` : ''}`,
    text: consequence(action, b),
    ok: w.ok,
    danger: w.danger || uncertain,
    fields: uncertain ? [{ name: 'i_know', label: 'I looked: the target does not have it, or acting on it twice does no harm', kind: 'check' }] : [],
    act: async (said) => {
      await post(`/v1/queues/${encodeURIComponent(b.queue)}/messages/${encodeURIComponent(b.id)}/${action}`, said);
      return `${w.done} message ${b.id} of key ${b.key}.`;
    },
    done,
  });
}
