// The question before a primary is asked to resign.

import { post, question } from './act.js';

export function askToResign(r) {
  const names = r.primaries.map((p) => p.name).join(', ');
  const waits = r.standbys.length > 0;
  question({
    title: `Ask ${r.primaries.length > 1 ? 'a holder' : names} to give up ${r.role}?`,
    text: waits
      ? 'It stops its work and hands the role over within milliseconds of having stopped.'
      : 'It stops its work. There is no standby: the role stays vacant until an instance campaigns, which may be the same one.',
    ok: 'Ask to resign',
    danger: true,
    fields: [{
      name: 'to', label: 'Which standby takes over?', kind: 'select',
      options: [['', waits ? 'The first one' : 'No standby'], ...r.standbys.map((s) => [s.id, s.address ? `${s.name} (${s.address})` : s.name])],
    }],
    act: async ({ to, by }) => {
      const asked = await (await post(`/v1/roles/${encodeURIComponent(r.role)}/resign`, { to, by })).json();
      return `Asked ${asked.primaries.map((p) => p.name).join(', ')} to give up ${r.role}.`;
    },
  });
}
