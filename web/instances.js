// The section of the live sessions.

import { byId, el, keyed, plural, setText, setTitle, timeOf } from './dom.js';

import { anchor, link } from './pages.js';

const list = byId('instances-list');

export function update(state, self) {
  byId('instances-empty').hidden = state.list.length > 0;
  list.hidden = state.list.length === 0;
  let summary = state.total ? plural(state.total, 'live session', 'live sessions') : '';
  if (state.total > state.list.length) summary += `, the first ${state.list.length} shown`;
  setText(byId('instances-summary'), summary);
  keyed(list, state.list, (s) => s.instance.id + s.started, create, (row, s) => fill(row, s, self));
}

function create() {
  const name = el('strong', 'name');
  const here = el('span', 'chip', 'this server');
  const address = el('span', 'sub');
  const since = el('span', 'sub');
  const timing = el('span', 'sub');
  const past = anchor('sub', 'History', 'history');
  return { element: el('li', 'tile card', el('div', 'line', name, here), address, since, timing, past), past, name, here, address, since, timing };
}

function fill(row, s, self) {
  setText(row.name, s.instance.name);
  setTitle(row.name, `instance ${s.instance.id}, ${s.renewals} renewals`);
  row.here.hidden = !self || self.id !== s.instance.id;
  setText(row.address, s.instance.address || 'no address');
  setTitle(row.address, s.instance.address || '');
  row.past.href = link('history', 'about', s.instance.name);
  row.past.setAttribute('aria-label', `History of ${s.instance.name}`);
  setText(row.since, `since ${timeOf(s.started)}`);
  setText(row.timing, `renews every ${seconds(s.interval_ms)}, lapses after ${seconds(s.timeout_ms)}`);
}

const seconds = (ms) => (ms < 1000 ? `${ms} ms` : `${Number((ms / 1000).toFixed(1))} s`);
