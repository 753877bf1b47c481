// A list that is shown a page at a time, and read again after a while.

import { byId, count, plural } from './dom.js';
import { current } from './pages.js';
import { get } from './stream.js';

const page = 25; // rows that are shown
const few = 8; // rows that need no filter
const every = 2000; // ms between two looks, or ten times as long as one takes

const all = []; // lists that are followed, or were

export function stopLists() {
  for (const list of all) list.stop();
}

// listPages follows the list with this id, which has the buttons id-back and id-more. params are what is asked for besides the page; draw shows
// an answer, and say the number of the page, whether more follow, and what failed. Nothing is asked while the list is not shown.
export function listPages({ id, path, params, isShown = () => true, draw, say }) {
  const back = byId(`${id}-back`);
  const more = byId(`${id}-more`);
  let cursors = []; // where the pages began that lead to this one
  let following = null; // where the next one begins
  let failed = '';
  let next = 0; // timer of the next look
  let turn = 0; // counts the looks, so that an answer that comes late is not shown
  let running = false;

  async function look() {
    clearTimeout(next);
    const mine = ++turn;
    const began = performance.now();
    if (!document.hidden && isShown()) {
      try {
        const query = new URLSearchParams({ limit: page, ...params() });
        if (cursors.length) query.set('after', cursors[cursors.length - 1]);
        const answer = await get(`${path}?${query}`);
        if (mine !== turn) return;
        following = answer.next || null;
        failed = '';
        draw(answer);
      } catch (err) {
        if (mine !== turn) return;
        failed = err.message;
      }
      say({ number: cursors.length + 1, following: Boolean(following), failed });
      back.hidden = cursors.length === 0;
      more.hidden = !following;
    }
    if (running) next = setTimeout(look, Math.max(every, 10 * (performance.now() - began)));
  }

  function again(after = 0) {
    turn++;
    clearTimeout(next);
    next = setTimeout(look, after);
  }

  function anew(after = 0) {
    cursors = [];
    again(after);
  }

  function start() {
    if (running) return;
    running = true;
    look();
  }

  function stop() {
    running = false;
    turn++;
    clearTimeout(next);
  }

  // leave ends it, and what it showed of pages.
  function leave() {
    if (!running) return;
    stop();
    cursors = [];
    back.hidden = more.hidden = true;
  }

  more.addEventListener('click', () => { if (following) { cursors.push(following); again(); } });
  back.addEventListener('click', () => { cursors.pop(); again(); });
  document.addEventListener('visibilitychange', () => { if (!document.hidden && running) again(); });
  const list = { look, again, anew, start, stop, leave };
  all.push(list);
  return list;
}

// listWhole shows a list that the state brings. If that brings the first rows alone, pages of it come from the path, with what the
// filter has as the parameter contains. With head, the first rows are those that matter most, and stay until the filter has a text.
// rows are those of an answer, has tells whether one has a text in small letters, words are those for one and for many rows.
export function listWhole({ id, page: on = id, path, rows, has, draw, words: [one, many], head = false }) {
  const filter = byId(`${id}-filter`);
  let state = { list: [], total: 0 };
  let about = '';
  let shown = [];
  const text = () => filter.value.trim();
  const isWhole = () => state.list.length >= state.total || head && !text();

  function show(aside) {
    draw(shown, [state.total ? plural(state.total, one, many) : '', about, ...aside].filter((t) => t).join(', '));
  }

  const pages = listPages({
    id,
    path,
    params: () => (text() ? { contains: text() } : {}),
    isShown: () => current() === on,
    draw: (answer) => { shown = rows(answer); },
    say: ({ number, following, failed }) => show([text() ? `${count(shown.length)}${following || number > 1 ? '' : ' match'}` : '', following || number > 1 ? `page ${number}` : '',
      failed ? `they could not be read: ${failed}` : '']),
  });

  function showState() {
    pages.leave();
    const wanted = text().toLowerCase();
    shown = state.list.filter((row) => has(row, wanted));
    show([wanted ? `${count(shown.length)} match` : '', state.list.length < state.total ? `the first ${count(shown.length)} shown` : '']);
  }

  filter.addEventListener('input', () => {
    if (isWhole()) showState();
    else {
      pages.start();
      pages.anew(200);
    }
  });
  return {
    // update takes in what the state has, and what to say of all rows.
    update(s, said = '') {
      state = s;
      about = said;
      filter.hidden = state.total <= few;
      if (isWhole()) showState();
      else pages.start();
    },
    // seek shows the row of a name, which may be on no page that is shown.
    seek(name) {
      if (!name || isWhole()) return;
      filter.value = name;
      pages.start();
      pages.anew();
    },
  };
}
