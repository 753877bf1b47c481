// The section of the jobs: when they run next, how their last runs ended, and what a person may do.

import { button, byId, coarse, count, duration, el, keyed, setText, setTitle, timeOf } from './dom.js';
import { post, question } from './act.js';
import { listPages } from './listpages.js';
import { current, link, seek, when, anchor } from './pages.js';
import { alarmText, openJob, openRun, path, stateText, zoned } from './runs.js';
import { drawBars, high, spark } from './spark.js';
import { storeClock } from './timeline.js';

const ticks = 60; // runs in the picture of a job

const list = byId('jobs-list');
const filter = byId('jobs-filter');

when('jobs', ([name, run]) => {
  if (run) openRun(name, run);
  else if (name) openJob(name, pages.again);
  pages.again();
});

// update is called while the server answers.
export function update() {
  pages.start();
}

const pages = listPages({
  id: 'jobs',
  path: '/v1/jobs',
  params: () => (filter.value.trim() ? { contains: filter.value.trim() } : {}),
  isShown: () => current() === 'jobs',
  draw: (answer) => {
    keyed(list, answer.jobs, (j) => j.job, create, fill);
    tick();
    seek();
  },
  say,
});

filter.addEventListener('input', () => pages.anew(200));

function say({ number, following, failed }) {
  const shown = list.childElementCount;
  const wanted = Boolean(filter.value.trim());
  let words = shown ? `${count(shown)}${following || number > 1 ? ' shown' : shown === 1 ? ' job' : ' jobs'}` : wanted && !failed ? 'no match' : '';
  if (number > 1) words += `, page ${number}`;
  if (failed) words += `; they could not be read: ${failed}`;
  setText(byId('jobs-summary'), words);
  list.hidden = shown === 0;
  byId('jobs-empty').hidden = shown > 0 || wanted || number > 1 || Boolean(failed);
}

function create() {
  const row = {};
  const name = button('', () => openJob(row.shown.job, pages.again), 'link name');
  const schedule = el('code', 'sub name');
  const how = el('strong', 'state');
  const why = el('span', 'sub');
  const alarm = el('span', 'sub raised');
  const due = el('span');
  const zone = el('span', 'sub');
  const line = spark(ticks);
  const trigger = button('Trigger…', () => askToTrigger(row.shown));
  const pause = button('', () => (row.shown.paused_by ? askToResume(row.shown) : askToPause(row.shown)));
  const past = anchor('quiet', 'History', 'history');
  const element = el('li', 'job', el('div', 'who', name, schedule), el('div', 'how', how, why, alarm), el('div', 'due', due, zone), line,
    el('div', 'act', trigger, pause, past));
  return Object.assign(row, { element, name, schedule, how, why, alarm, due, zone, line, trigger, pause, past });
}

function fill(row, j) {
  row.shown = j;
  setText(row.name, j.job);
  setTitle(row.name, `All runs of ${j.job}`);
  setText(row.schedule, j.schedule);
  setTitle(row.schedule, j.schedule);
  const alarm = alarmText(j);
  setText(row.alarm, alarm);
  setTitle(row.alarm, alarm);
  row.element.dataset.state = j.state === 'overdue' || alarm ? 'bad' : j.state;
  drawRecent(row.line, j.recent || '');
  setText(row.pause, j.paused_by ? 'Resume…' : 'Pause…');
  row.pause.setAttribute('aria-label', `${j.paused_by ? 'Resume' : 'Pause'} ${j.job}`);
  row.trigger.setAttribute('aria-label', `Trigger ${j.job} once, now`);
  row.past.href = link('history', 'job', ...j.job.split('/'));
  row.past.setAttribute('aria-label', `History of ${j.job}`);
}

// tick moves what moves by itself between two looks.
export function tick() {
  if (current() !== 'jobs') return;
  const now = storeClock();
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

const kinds = { s: 'succeeded', f: 'failed', t: 'timed out', c: 'cancelled', l: 'lost', m: 'missed', k: 'skipped' };

// drawRecent shows how the last runs ended. What did not start is half as high.
function drawRecent(svg, recent) {
  if (svg.shown === recent) return;
  svg.shown = recent;
  const many = Object.keys(kinds).map((k) => [kinds[k], recent.split(k).length - 1]).filter(([, n]) => n);
  drawBars(svg, recent ? `Of the last ${recent.length} runs: ${many.map(([k, n]) => `${n} ${k}`).join(', ')}` : 'No runs yet',
    [...recent].map((c) => ({ className: c === 's' ? 'heard' : 'ck'.includes(c) ? 'open' : 'missed', tall: 'mk'.includes(c) ? high / 2 : high })));
}

const askTo = (verb, word, j, text, said) => question({
  title: `${word} ${j.job}?`,
  text,
  ok: word,
  act: async ({ by }) => {
    await post(`${path(j.job)}/${verb}`, { by });
    return said;
  },
  done: pages.again,
});

const askToTrigger = (j) => askTo('trigger', 'Trigger', j,
  j.open.length ? 'It runs once more, as soon as the runs that are on or wait have ended.' : 'It runs once, now, on an instance that offers it. Its schedule stays as it is.',
  `Triggered ${j.job}.`);
const askToPause = (j) => askTo('pause', 'Pause', j, 'Times that come meanwhile are skipped. A run that is on continues, and it can still be triggered.', `Paused ${j.job}.`);
const askToResume = (j) => askTo('resume', 'Resume', j, 'Its schedule continues with the next time. What was skipped stays so.', `Resumed ${j.job}.`);
