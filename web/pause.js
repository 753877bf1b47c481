// The questions before a source or a check is paused, resumed or retired.

import { post, question } from './act.js';

const lengths = [['900000', '15 minutes'], ['3600000', '1 hour'], ['14400000', '4 hours'], ['86400000', '1 day'], ['604800000', '1 week'], ['0', 'Until it is resumed']];

// askToPause pauses a source, or without one the check; done is called when it
// was done.
export function askToPause(event, source = '', done = () => {}) {
  const note = { name: 'note', label: 'Why? Others see it.' };
  question({
    title: `Pause ${source || event}?`,
    text: source
      ? `No alarm is raised for this source of ${event} meanwhile. An open alarm stays open. Afterwards the source has a whole limit to send a heartbeat.`
      : 'No alarm is raised for any of its sources until it is resumed. Open alarms stay open. Afterwards each source has a whole limit to send a heartbeat.',
    ok: 'Pause',
    fields: source ? [{ name: 'long', label: 'For how long?', kind: 'select', options: lengths, value: '3600000' }, note] : [note],
    act: async ({ long, note: why, by }) => {
      await act(event, source, 'pause', { for_ms: Number(long || 0), note: why, by });
      return `Paused ${source || event}.`;
    },
    done,
  });
}

export const askToResume = (event) => question({
  title: `Resume ${event}?`,
  what: 'Its sources are checked again.',
  text: 'Each has a whole limit from now to send a heartbeat.',
  ok: 'Resume',
  act: async ({ by }) => {
    await act(event, '', 'resume', { by });
    return `Resumed ${event}.`;
  },
});

// act does something with a source, or without one with the check.
export function act(event, source, verb, body) {
  const path = source ? `/v1/sources/${encodeURIComponent(event)}/${encodeURIComponent(source)}` : `/v1/checks/${encodeURIComponent(event)}`;
  return post(`${path}/${verb}`, body);
}

export const acknowledge = (alarm, by) => post(`/v1/alarms/${encodeURIComponent(alarm)}/acknowledge`, { by });
