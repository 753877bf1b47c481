// The dashboard: signs in, follows the stream, and hands what comes to its pages.

import { byId, el, setText, setTitle, timeOf } from './dom.js';
import { stopLists } from './listpages.js';
import { Unauthorized, ask, follow, setToken, token } from './stream.js';
import { storeClock } from './timeline.js';
import * as cache from './cache.js';
import * as charts from './charts.js';
import * as demo from './demo.js';
import * as history from './history.js';
import * as instances from './instances.js';
import * as jobs from './jobs.js';
import * as monitor from './monitor.js';
import * as overview from './overview.js';
import * as pages from './pages.js';
import * as queues from './queues.js';
import * as roles from './roles.js';
import * as shards from './shards.js';
import * as takeovers from './takeovers.js';

let stop = () => {};
let stopCache = null; // while a cache's peer is followed
let lastState = null;
let shownFrom = null; // when the last state came, of the server or of a cache's peer alone

function stopAll() {
  stop();
  if (stopCache) stopCache();
  stopCache = null;
  stopLists();
}

async function start() {
  stopAll();
  connection('connecting');
  try {
    const { events } = await (await ask('/v1/history?limit=100')).json();
    history.fill(events);
    takeovers.fill(events);
    signedIn(true);
    stop = follow({
      connected: () => connection('live'),
      lost: () => connection('lost'),
      unauthorized: () => signedIn(false),
      state: show,
      history: (e) => {
        history.add(e);
        takeovers.add(e);
      },
    }, events.length ? events[events.length - 1].id : 0);
  } catch (err) {
    if (err instanceof Unauthorized) {
      signedIn(false, wrongToken());
      return;
    }
    if (err.code === 'missing_scope') { // one that may only send, for instance
      signedIn(false, err.message);
      return;
    }
    if (err.code === 'no_route') {
      alone();
      return;
    }
    connection('lost', err.message);
    const again = setTimeout(start, 2000);
    stop = () => clearTimeout(again);
  }
}

const wrongToken = () => (token() ? 'That token is not the right one.' : '');

// alone is the page of a peer of a cache that no server has around it.
function alone() {
  signedIn(true);
  document.body.classList.add('alone');
  pages.offer(['cache']);
  stopCache = cache.start({
    connected: () => connection('live'),
    lost: () => connection('lost'),
    unauthorized: () => signedIn(false, wrongToken()),
    state: () => {
      shownFrom = new Date();
      showTitle();
    },
  });
}

function signedIn(yes, why = '') {
  byId('login').hidden = yes;
  byId('stage').hidden = !yes;
  byId('sections').hidden = !yes;
  byId('sign-out').hidden = !yes || !token();
  setText(byId('login-error'), why);
  if (!yes) {
    stopAll();
    setToken('');
    connection('signed out');
    byId('token').focus();
  }
}

byId('login').addEventListener('submit', (e) => {
  e.preventDefault();
  setToken(byId('token').value.trim());
  byId('token').value = '';
  start();
});

byId('sign-out').addEventListener('click', () => { signedIn(false); window.location.reload(); });

let lost = false;

function connection(how, why = '') {
  document.body.dataset.connection = how;
  setText(byId('connection'), { live: 'live', lost: 'reconnecting', connecting: 'connecting' }[how] || how);
  lost = how === 'lost';
  banner(why);
}

function banner(why = '') {
  const storeDown = lastState && !lastState.store.up;
  let text = '';
  // Not the time at which the loss was noticed: a computer that slept notices hours later.
  if (lost) text = `The connection to the server was lost; trying again. ${shownFrom ? `What is shown is from ${timeOf(shownFrom)}. ` : ''}${why}`;
  else if (storeDown) text = `The store does not answer: ${lastState.store.error}. The figures shown are old.`;
  document.body.classList.toggle('stale', text !== '');
  byId('banner').hidden = text === '';
  setText(byId('banner'), text);
}

function show(state) {
  lastState = state;
  shownFrom = new Date();
  banner();
  pages.offer([...state.parts, 'store']);
  if (state.parts.includes('cache') && !stopCache) stopCache = cache.start();
  showStore(state);
  if (state.store.now) storeClock.sync(new Date(state.store.now).getTime());
  if (state.roles) roles.update(state.roles);
  if (state.shards) shards.update(state.shards, state.store.now);
  if (state.queues) queues.update(state.queues);
  if (state.monitor) monitor.update(state.monitor, state.queues, state.server.instance);
  if (state.sessions) instances.update(state.sessions, state.server.instance);
  if (state.store.now) jobs.update();
  overview.update();
  charts.update();
  demo.update(state.parts);
  takeovers.update(state);
  pages.seek();
  showTitle();
}

function showTitle() {
  const { vacant_roles: vacant, blocked_keys: blocked } = lastState || {}; // missing while there are none
  const news = [vacant ? `${vacant} vacant` : '', blocked ? `${blocked} blocked` : '', shards.news(), monitor.news(), cache.news()].filter((t) => t).join(', ');
  const title = pages.currentTitle() ? `${pages.currentTitle()} · Understudy` : 'Understudy';
  document.title = news ? `(${news}) ${title}` : title;
}

window.addEventListener('page', showTitle);

function showStore({ store, server }) {
  fact('Store', store.location || '–', `${store.kind}, schema ${store.schema}`);
  fact('Database', store.server || '–', store.server);
  fact('Answers in', store.up ? `${store.latency_ms.toFixed(1)} ms` : 'no answer', '');
  fact('Wake-ups', store.notifies ? 'at once' : 'by polling', 'how those who wait learn that something changed hands');
  fact('This instance', server.instance ? server.instance.name : '–', server.instance ? `instance ${server.instance.id}` : '');
  fact('Version', server.version || '–', server.version);
  const warnings = store.warnings || [];
  const list = byId('warnings');
  if (list.dataset.shown !== warnings.join('\n')) {
    list.dataset.shown = warnings.join('\n');
    list.replaceChildren(...warnings.map((w) => el('li', '', w)));
  }
}

const facts = new Map();
function fact(name, value, title) {
  if (!facts.has(name)) {
    const dd = el('dd');
    facts.set(name, dd);
    byId('store').append(el('div', '', el('dt', '', name), dd));
  }
  setText(facts.get(name), value);
  setTitle(facts.get(name), title || '');
}

setInterval(() => {
  if (document.hidden) return;
  roles.tick();
  jobs.tick();
  shards.tick();
  monitor.tick();
}, 250);
start();
