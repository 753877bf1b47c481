// The question before a source or an event name is paused.

import { byId, say } from './dom.js';
import { ask } from './stream.js';

const dialog = byId('pause');
const lasting = byId('pause-for');
const note = byId('pause-note');
const ok = byId('pause-ok');
let asked = null;

// askToPause pauses a source, or without one the event name; done is called when it
// was done.
export function askToPause(event, source = '', done = () => {}) {
  asked = { event, source, done };
  byId('pause-title').textContent = `Pause ${source || event}?`;
  byId('pause-text').textContent = source
    ? `No alarm is raised for this source of ${event} meanwhile. One that stands stays. Afterwards it has a whole limit to show itself.`
    : 'No alarm is raised for any of its sources until it is resumed. Those that stand stay. Afterwards each source has a whole limit to show itself.';
  byId('pause-long').hidden = !source;
  lasting.value = '3600000';
  note.value = '';
  byId('pause-error').textContent = '';
  dialog.showModal();
}

byId('pause-cancel').addEventListener('click', () => dialog.close());

byId('pause-form').addEventListener('submit', async (e) => {
  e.preventDefault();
  const { event, source, done } = asked;
  ok.disabled = true;
  try {
    await act(event, source, 'pause', { for_ms: source ? Number(lasting.value) : 0, note: note.value.trim() });
    dialog.close();
    say(`Paused ${source || event}.`);
    done();
  } catch (err) {
    byId('pause-error').textContent = err.message;
  } finally {
    ok.disabled = false;
  }
});

const post = (path, body) => ask(path, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ by: 'somebody at the page', ...body }),
});

// act does something with a source, or without one with the event name.
export function act(event, source, verb, body = {}) {
  const path = source ? `/v1/sources/${encodeURIComponent(event)}/${encodeURIComponent(source)}` : `/v1/event-names/${encodeURIComponent(event)}`;
  return post(`${path}/${verb}`, body);
}

export const acknowledge = (alarm) => post(`/v1/alarms/${encodeURIComponent(alarm)}/acknowledge`, {});
