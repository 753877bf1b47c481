// The section of the jobs: when they run next, how their last runs ended, and what a person may do.

import { byId, coarse, count, duration, el, keyed, setText, setTitle, timeOf } from './dom.js';
import { post, question } from './act.js';
import { current, link, seek, when, anchor } from './pages.js';
import { openJob, openRun, path, stateText, zoned } from './runs.js';
import { ask } from './stream.js';

const page = 25; // jobs that are shown
const every = 2000; // ms between two looks, or ten times as long as one takes
const ticks = 60; // runs in the picture of a job

const list = byId('jobs-list');
const from = byId('jobs-from');
const back = byId('jobs-back');
const more = byId('jobs-more');

let cursors = []; // where the pages began that lead to this one
let following = null; // where the next one begins
let failed = '';
let next = 0; // timer of the next look
let turn = 0; // counts the looks, so that an answer that comes late is not shown
let running = false;
let storeOffset = 0; // the store's clock minus this one's, in ms

when('jobs', ([name, run]) => {
  if (run) openRun(name, run);
  else if (name) openJob(name, again);
  again();
});

// update is called while the server answers, with the store's clock.
export function update(now) {
  storeOffset = new Date(now).getTime() - Date.now();
  if (running) return;
  running = true;
  again();
}

export function stop() {
  running = false;
  turn++;
  clearTimeout(next);
}

function again(after = 0) {
  turn++;
  clearTimeout(next);
  next = setTimeout(look, after);
}

from.addEventListener('input', () => { cursors = []; again(200); });
more.addEventListener('click', () => { if (following) { cursors.push(following); again(); } });
back.addEventListener('click', () => { cursors.pop(); again(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden && running) again(); });

// before is a text that sorts before a name, and after nearly all that sort before that.
const before = (name) => name.slice(0, -1) + String.fromCharCode(Math.max(0x20, name.charCodeAt(name.length - 1) - 1)) + '~';

// look reads the page that is shown, and again after a while.
async function look() {
  const mine = ++turn;
  const began = performance.now();
  if (!document.hidden && current() === 'jobs') {
    try {
      const query = new URLSearchParams({ limit: page });
      const after = cursors[cursors.length - 1] || (from.value.trim() ? before(from.value.trim()) : '');
      if (after) query.set('after', after);
      const answer = await (await ask(`/v1/jobs?${query}`)).json();
      if (mine !== turn) return;
      following = answer.next || null;
      failed = '';
      keyed(list, answer.jobs, (j) => j.job, create, fill);
      tick();
      seek();
    } catch (err) {
      if (mine !== turn) return;
      failed = err.message;
    }
    say();
  }
  if (running) next = setTimeout(look, Math.max(every, 10 * (performance.now() - began)));
}

function say() {
  const shown = list.childElementCount;
  let words = shown ? `${count(shown)}${following || cursors.length ? ' shown' : shown === 1 ? ' job' : ' jobs'}` : '';
  if (cursors.length) words += `, page ${cursors.length + 1}`;
  if (failed) words += `; they could not be read: ${failed}`;
  setText(byId('jobs-summary'), words);
  list.hidden = shown === 0;
  byId('jobs-empty').hidden = shown > 0 || Boolean(failed);
  back.hidden = cursors.length === 0;
  more.hidden = !following;
}

const button = (text, go) => {
  const b = el('button', 'quiet', text);
  b.type = 'button';
  b.addEventListener('click', go);
  return b;
};

function create() {
  const name = el('button', 'link name');
  name.type = 'button';
  const schedule = el('code', 'sub name');
  const how = el('strong', 'state');
  const why = el('span', 'sub');
  const due = el('span');
  const zone = el('span', 'sub');
  const line = recentPicture();
  const row = {};
  const trigger = button('Trigger…', () => askToTrigger(row.shown));
  const pause = button('', () => (row.shown.paused_by ? askToResume(row.shown) : askToPause(row.shown)));
  const past = anchor('quiet', 'History', 'history');
  const element = el('li', 'job', el('div', 'who', name, schedule), el('div', 'how', how, why), el('div', 'due', due, zone), line,
    el('div', 'act', trigger, pause, past));
  name.addEventListener('click', () => openJob(row.shown.job, again));
  return Object.assign(row, { element, name, schedule, how, why, due, zone, line, trigger, pause, past });
}

function fill(row, j) {
  row.shown = j;
  setText(row.name, j.job);
  setTitle(row.name, `All runs of ${j.job}`);
  setText(row.schedule, j.schedule);
  setTitle(row.schedule, j.schedule);
  const { last } = j;
  const bad = last && ['failed', 'timed_out', 'lost', 'missed'].includes(last.state);
  row.element.dataset.state = j.state === 'overdue' || bad ? 'bad' : j.state;
  drawRecent(row.line, j.recent || '');
  setText(row.pause, j.paused_by ? 'Resume…' : 'Pause…');
  row.pause.setAttribute('aria-label', `${j.paused_by ? 'Resume' : 'Pause'} ${j.job}`);
  row.trigger.setAttribute('aria-label', `Run ${j.job} once, now`);
  row.past.href = link('history', 'job', ...j.job.split('/'));
  row.past.setAttribute('aria-label', `History of ${j.job}`);
}

// tick moves what moves by itself between two looks.
export function tick() {
  if (current() !== 'jobs') return;
  const now = Date.now() + storeOffset;
  for (const row of (list.rows || new Map()).values()) {
    const j = row.shown;
    const on = j.open.find((r) => r.state === 'running');
    setText(row.how, on ? `running on ${on.instance}` : j.state);
    const said = on ? `for ${coarse(now - new Date(on.started))}` : j.paused_by ? `by ${j.paused_by}`
      : j.last ? `last: ${stateText(j.last.state)}${j.last.instance ? ` on ${j.last.instance}` : ''}${j.last.started ? `, took ${duration(j.last.duration_ms)}` : ''}` : 'no run yet';
    setText(row.why, said);
    setTitle(row.why, j.last ? j.last.why || '' : '');
    const at = j.next[0];
    const wait = at ? new Date(at) - now : 0;
    setText(row.due, at ? timeOf(at) : 'no more');
    setText(row.zone, at ? [wait >= 0 ? `in ${coarse(wait + 999)}` : `${coarse(-wait)} ago`, zoned(j.schedule, at)].filter((t) => t).join(', ') : '');
    setTitle(row.zone, row.zone.textContent);
  }
}

const space = 'http://www.w3.org/2000/svg';
const wide = 4; // from one bar to the next
const high = 16;
const kinds = { s: 'succeeded', f: 'failed', t: 'timed out', c: 'cancelled', l: 'lost', m: 'missed', k: 'skipped' };

function recentPicture() {
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('viewBox', `0 0 ${ticks * wide} ${high}`);
  svg.setAttribute('role', 'img');
  return svg;
}

// drawRecent shows how the last runs ended, the latest on the right.
function drawRecent(svg, recent) {
  if (svg.shown === recent) return;
  svg.shown = recent;
  const many = Object.keys(kinds).map((k) => [kinds[k], recent.split(k).length - 1]).filter(([, n]) => n);
  svg.setAttribute('aria-label', recent ? `Of the last ${recent.length} runs: ${many.map(([k, n]) => `${n} ${k}`).join(', ')}` : 'No runs yet');
  svg.replaceChildren(...[...recent].map((c, i) => {
    const bar = document.createElementNS(space, 'rect');
    const low = c === 'm' || c === 'k'; // it did not start
    bar.setAttribute('class', c === 's' ? 'heard' : 'ck'.includes(c) ? 'open' : 'missed');
    bar.setAttribute('x', String((ticks - 1 - i) * wide));
    bar.setAttribute('y', String(low ? high / 2 : 0));
    bar.setAttribute('width', '3');
    bar.setAttribute('height', String(low ? high / 2 : high));
    bar.setAttribute('rx', '1');
    return bar;
  }));
}

const askTo = (verb, word, j, text, said) => question({
  title: `${word} ${j.job}?`,
  text,
  ok: word,
  act: async ({ by }) => {
    await post(`${path(j.job)}/${verb}`, { by });
    return said;
  },
  done: again,
});

const askToTrigger = (j) => askTo('trigger', 'Trigger', j,
  j.open.length ? 'It runs once more, as soon as the runs that are on or wait have ended.' : 'It runs once, now, on an instance that offers it. Its schedule stays as it is.',
  `Triggered ${j.job}.`);
const askToPause = (j) => askTo('pause', 'Pause', j, 'Times that come meanwhile are skipped. A run that is on continues, and it can still be triggered.', `Paused ${j.job}.`);
const askToResume = (j) => askTo('resume', 'Resume', j, 'Its schedule continues with the next time. What was skipped stays so.', `Resumed ${j.job}.`);
