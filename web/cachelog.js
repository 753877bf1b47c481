// What the peer did about its keys lately, the newest on top. Nothing is kept
// elsewhere: it begins when the page is opened.

import { byId, el, timeOf } from './dom.js';

const list = byId('cache-events');
const most = 200;

const kinds = { fetching: 'taken', candidate: 'asked' };

// add takes in an event.
export function add(e) {
  const time = el('time', '', timeOf(e.time));
  time.dateTime = e.time;
  time.title = `${new Date(e.time).toLocaleString()} by the peer’s clock${e.term ? `, term ${e.term}` : ''}`;
  const moved = e.from || e.to ? `${e.from} → ${e.to}` : '';
  const bad = /fail|lost|dead|refus|partition|abort|cut off/i.test(e.why) || (!e.key && e.to && e.to !== 'up');
  const row = el('li', `event ${bad ? 'lapsed' : kinds[e.to] || ''} changed`,
    time,
    el('div', 'what', el('strong', '', e.key || e.peer || ''), el('span', '', moved), el('span', 'sub', [e.why, e.key && e.peer ? e.peer : ''].filter((t) => t).join('; '))));
  list.prepend(row);
  while (list.childElementCount > most) list.lastElementChild.remove();
  list.hidden = false;
  byId('cache-events-empty').hidden = true;
}
