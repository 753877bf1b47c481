// A list that is shown a page at a time, and read again after a while.

import { byId } from './dom.js';
import { get } from './stream.js';

const page = 25; // rows that are shown
const every = 2000; // ms between two looks, or ten times as long as one takes

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

  more.addEventListener('click', () => { if (following) { cursors.push(following); again(); } });
  back.addEventListener('click', () => { cursors.pop(); again(); });
  document.addEventListener('visibilitychange', () => { if (!document.hidden && running) again(); });
  return { look, again, anew, start, stop };
}
