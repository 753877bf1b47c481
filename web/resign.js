// The question before a primary is asked to resign.

import { byId, el, say } from './dom.js';
import { ask } from './stream.js';

const dialog = byId('resign');
const to = byId('resign-to');
const ok = byId('resign-ok');
let role = null;

export function askToResign(r) {
  role = r;
  const names = r.primaries.map((p) => p.name).join(', ');
  byId('resign-title').textContent = `Ask ${names} to give up ${r.role}?`;
  byId('resign-text').textContent = r.standbys.length
    ? 'It stops its work and hands the role over within milliseconds of having stopped.'
    : 'It stops its work. Nobody stands by: the role stays vacant until somebody comes, which may be the same one.';
  const anyone = el('option', '', r.standbys.length ? 'Whoever is first' : 'Nobody waits');
  anyone.value = '';
  to.replaceChildren(anyone, ...r.standbys.map((s) => {
    const option = el('option', '', s.address ? `${s.name} (${s.address})` : s.name);
    option.value = s.id;
    return option;
  }));
  to.disabled = r.standbys.length === 0;
  byId('resign-error').textContent = '';
  dialog.showModal();
}

byId('resign-cancel').addEventListener('click', () => dialog.close());

byId('resign-form').addEventListener('submit', async (e) => {
  e.preventDefault();
  ok.disabled = true;
  try {
    await ask(`/v1/roles/${encodeURIComponent(role.role)}/resign`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ to: to.value, by: 'somebody at the page' }),
    });
    dialog.close();
    say(`Asked ${role.primaries.map((p) => p.name).join(', ')} to give up ${role.role}.`);
  } catch (err) {
    byId('resign-error').textContent = err.message;
  } finally {
    ok.disabled = false;
  }
});
