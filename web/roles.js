// The section of the roles: who is primary, for how long, and who stands by.

import { button, byId, coarse, count, el, keyed, plural, setText, setTitle } from './dom.js';
import { listWhole } from './listpages.js';
import { anchor, link, seek, when } from './pages.js';
import { askToRemove } from './remove.js';
import { askToResign } from './resign.js';
import { storeClock } from './timeline.js';

const list = byId('roles-list');
const most = 12; // standbys of a role that are shown

let total = 0;
let received = 0; // performance.now() when the roles came

const roles = listWhole({
  id: 'roles',
  path: '/v1/roles',
  rows: (answer) => {
    received = performance.now();
    return answer.roles;
  },
  has: (r, text) => r.role.toLowerCase().includes(text),
  draw,
  words: ['role', 'roles'],
});
when('roles', ([role]) => roles.seek(role));

// update takes in what the server says.
export function update(state) {
  total = state.total;
  received = performance.now();
  const vacant = state.list.filter((r) => r.primaries.length === 0).length;
  roles.update(state, vacant && state.list.length === total ? `${vacant} vacant` : '');
}

function draw(shown, summary) {
  byId('roles-empty').hidden = total > 0;
  list.hidden = byId('roles-heads').hidden = shown.length === 0;
  setText(byId('roles-summary'), summary);
  keyed(list, shown, (r) => r.role, create, fill);
  tick();
  seek();
}

function create() {
  const name = el('h3', 'name');
  const state = el('p', 'sub');
  const holders = el('ul', 'holders');
  const standbys = el('div', 'standbys');
  const resign = button('Resign…', () => askToResign(row.role));
  const forget = button('Forget…', () => askToRemove.role(row.role.role));
  const past = anchor('quiet', 'History', 'history');
  const element = el('li', 'role', el('div', 'who', name, state), holders, standbys, el('div', 'act', resign, forget, past));
  const row = { element, name, state, holders, standbys, resign, forget, past };
  return row;
}

function fill(row, role) {
  const before = row.role && row.role.primaries.map((p) => p.id).join();
  const after = role.primaries.map((p) => p.id).join();
  row.role = role;
  row.received = received;
  setText(row.name, role.role);
  setTitle(row.name, role.role);
  row.element.classList.toggle('vacant', role.primaries.length === 0);
  if (before !== undefined && before !== after) flash(row.element);
  keyed(row.holders, role.primaries, (p) => p.id + p.term, createHolder, fillHolder);
  const rest = role.standbys.length - most;
  keyed(row.standbys, rest > 0 ? [...role.standbys.slice(0, most), { id: '', name: `and ${count(rest)} more`, address: '' }] : role.standbys, (s) => s.id, createStandby, fillStandby);
  row.resign.hidden = role.primaries.length === 0;
  row.forget.hidden = role.primaries.length + role.standbys.length > 0 || !role.term;
  row.forget.setAttribute('aria-label', `Forget ${role.role}`);
  row.past.href = link('history', 'role', role.role);
  row.past.setAttribute('aria-label', `History of ${role.role}`);
  row.resign.setAttribute('aria-label', `Ask the primary of ${role.role} to resign`);
}

function flash(element) {
  element.classList.remove('changed');
  void element.offsetWidth; // starts the animation anew
  element.classList.add('changed');
}

function createHolder() {
  const name = el('strong', 'name');
  const address = el('span', 'sub');
  const since = el('span', 'since');
  const term = el('span', 'sub term');
  const fillBar = el('span', 'fill');
  const bar = el('span', 'bar', fillBar);
  bar.setAttribute('aria-hidden', 'true');
  const left = el('span', 'sub left');
  const element = el('li', 'holder', el('div', '', name, address), el('div', '', since, term), el('div', 'lifetime', bar, left));
  return { element, name, address, since, term, fillBar, left };
}

function fillHolder(row, p) {
  row.holder = p;
  row.received = received;
  setText(row.name, p.name);
  setTitle(row.name, `${p.name}, instance ${p.id}`);
  setText(row.address, p.address || 'no address');
  setTitle(row.address, p.address);
  setText(row.term, `term ${p.term}`);
  setTitle(row.since, `since ${new Date(p.since).toLocaleString()} by the store’s clock`);
}

const createStandby = () => ({ element: el('span', 'chip') });

function fillStandby(row, s) {
  setText(row.element, s.name);
  setTitle(row.element, s.id ? `${s.name} ${s.address} stands by, instance ${s.id}` : '');
}

// tick moves what moves by itself between two messages.
export function tick() {
  const now = performance.now();
  const storeNow = storeClock();
  for (const row of (list.rows || new Map()).values()) {
    const { role } = row;
    if (role.primaries.length === 0) {
      const since = role.vacant_for_ms + now - row.received;
      setText(row.state, role.term ? `vacant for ${coarse(since)}` : 'vacant, never held');
    } else {
      setText(row.state, role.primaries.length > 1 ? plural(role.primaries.length, 'holder', 'holders') : '');
    }
    if (role.standbys.length === 0) row.standbys.dataset.none = 'no standby';
    else delete row.standbys.dataset.none;
    for (const h of row.holders.rows.values()) tickHolder(h, now, storeNow);
  }
}

function tickHolder(h, now, storeNow) {
  const left = Math.max(0, h.holder.expires_in_ms - (now - h.received));
  const share = Math.min(1, left / (h.holder.timeout_ms || 5000));
  h.fillBar.style.transform = `scaleX(${share.toFixed(3)})`;
  h.fillBar.dataset.level = share > 0.5 ? 'good' : share > 0.2 ? 'low' : 'bad';
  setText(h.left, left > 0 ? `${left < 60_000 ? `${(left / 1000).toFixed(1)} s` : coarse(left)} left` : 'lapsed');
  setText(h.since, `for ${coarse(storeNow - new Date(h.holder.since).getTime())}`);
}
