// The section of the live sessions.

import { byId, el, keyed, setText, setTitle, timeOf } from './dom.js';
import { listWhole } from './listpages.js';
import { anchor, link } from './pages.js';

const list = byId('instances-list');

let total = 0;
let self = null; // the instance that serves this page

const sessions = listWhole({
  id: 'instances',
  path: '/v1/sessions',
  rows: (answer) => answer.sessions,
  has: (s, text) => s.instance.name.toLowerCase().includes(text),
  draw,
  words: ['live session', 'live sessions'],
});

export function update(state, instance) {
  total = state.total;
  self = instance;
  sessions.update(state);
}

function draw(shown, summary) {
  byId('instances-empty').hidden = total > 0;
  list.hidden = shown.length === 0;
  setText(byId('instances-summary'), summary);
  keyed(list, shown, (s) => s.instance.id + s.started, create, fill);
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

function fill(row, s) {
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
