// The questions before something is removed that has no use any more.

import { count, plural } from './dom.js';
import { question } from './act.js';
import { ask } from './stream.js';

const at = (...parts) => `/v1/${parts.map(encodeURIComponent).join('/')}`;

function removal(title, path, text, { word = 'Remove', fields = [], done = () => {} } = {}) {
  question({
    title: `${word} ${title}?`,
    text,
    ok: word,
    danger: true,
    fields,
    act: async (query) => {
      await ask(`${path}?${new URLSearchParams(query)}`, { method: 'DELETE' });
      return `${word === 'Forget' ? 'Forgot' : 'Removed'} ${title}.`;
    },
    done,
  });
}

export const askToRemove = {
  role: (role) => removal(role, at('roles', role),
    'Nobody holds it or waits for it. It leaves every list until an instance campaigns for it again; the history keeps what happened.', { word: 'Forget' }),
  queue: (q) => {
    const lost = q.depth + q.dead_letters;
    removal(q.queue, at('queues', q.queue), lost
      ? `${plural(lost, 'message', 'messages')} that wait, are in flight or are dead letters are lost with it.`
      : 'It has no messages that wait.', { fields: lost ? [{ name: 'messages', label: `To lose them, type ${count(lost).replace(/\D/g, '')}.`, most: 19 }] : [] });
  },
  shard: (shard) => removal(shard, at('shards', shard), 'Its agents must have stopped. The data on its nodes stays.'),
  source: (s, done) => removal(s.source, at('sources', s.check, s.source), 'A heartbeat brings it back, unless its check knows declared sources alone.', { done }),
  check: (check) => removal(check, at('checks', check), 'Its alarms end, and its sources are forgotten. A server whose file has it adds it again when it starts.'),
};
