// What the window shows of the monitor: one source, one alarm, the alarms that were,
// and the rejected input.

import { button, byId, coarse, count, duration, el, facts, plural, setText, timeOf } from './dom.js';
import { question } from './act.js';
import { open, paged, show, table } from './browse.js';
import { anchor } from './pages.js';
import { acknowledge, act, askToPause } from './pause.js';
import { askToRemove } from './remove.js';
import { drawSpark, spark } from './spark.js';
import { openJob, stateText } from './runs.js';
import { ask, get, token } from './stream.js';

const page = 100;
const at = (event, source) => `/v1/sources/${encodeURIComponent(event)}/${encodeURIComponent(source)}`;

let live = []; // what moves by itself in the window

// tick moves what moves by itself between two answers.
export function tick() {
  if (byId('browse').open) for (const move of live) move();
}

export const openSource = (event, source, done = () => {}) => open('A source of the monitor',
  [[source, () => openSource(event, source, done)]], () => showSource(event, source, done));

export const openAlarm = (id, done = () => {}) => open('An alarm', [['Alarms', openAlarms], [id, () => openAlarm(id, done)]], () => showAlarm(id, done));

export const openAlarms = () => open('Alarms', [['Alarms', openAlarms]], () => showAlarms(''));
export const openUnended = () => open('Open alarms', [['Open alarms', openUnended]], () => showAlarms('open=true&'));
export const openRejected = () => open('Rejected input', [['Rejected input', openRejected]], showRejected);

// why is what there is to say about a state.
export function why(s) {
  if (s.state === 'down') return s.reason;
  if (s.state === 'paused') return s.until ? `until ${timeOf(s.until)}` : 'until resumed';
  if (s.running) return 'a run is under way';
  return '';
}

// leftOf puts into words how long a source may still be quiet.
export function leftOf(s, passed) {
  if (s.state === 'up' && s.check_paused) return 'its check is paused';
  if (s.left_ms === undefined) return s.state === 'up' ? 'nothing is expected' : '';
  const left = s.left_ms - passed;
  if (s.state === 'down') return s.reason === 'silent' && left < 0 ? `${coarse(-left)} over` : '';
  return left >= 0 ? `${coarse(left + 999)} left` : `late by ${coarse(-left)}`;
}

const timeIf = (iso) => (iso ? timeOf(iso) : '');

async function showSource(event, source, done) {
  const s = await get(at(event, source));
  const received = performance.now();
  const last = el('span', '');
  const left = el('span', '');
  live = [() => {
    const passed = performance.now() - received;
    setText(last, s.quiet_ms === undefined ? 'never' : `${coarse(s.quiet_ms + passed)} ago, at ${timeOf(s.last)}`);
    setText(left, leftOf(s, passed) || '–');
  }];
  live[0]();
  const line = spark(64);
  drawSpark(line, s);
  const labels = Object.entries(s.labels || {}).map(([k, v]) => `${k}=${v}`).join(', ');
  return [
    facts([['State', [s.state, why(s)].filter((t) => t).join(', ')], ['Check', s.check], ['Last beat', last], ['Time left', left], ['Beats', count(s.beats)],
      ['Came by', s.path || ''], ['Known', s.declared ? 'declared' : 'from its first beat'], ['Labels', labels], ['Down since', timeIf(s.since)],
      ['Sender’s time', timeIf(s.sent)], ['Sender’s number', s.seq ? count(s.seq) : ''], ['Exit status', s.code ? String(s.code) : ''], ['Note', s.note || '']]),
    line,
    actions(s, done),
    ...(s.report ? [el('h3', '', `Last report: ${s.report.kind}, ${timeOf(s.report.at)}`), el('pre', '', s.report.body || 'No text.')] : []),
    el('h3', '', 'Its last alarms'),
    alarmTable(s.alarms, 'It has raised none.'),
    el('h3', '', 'To paste'),
    ...pingLines(s),
    el('h3', '', 'Badge, for anyone who has its address'),
    badge(event, source, s.badge),
  ];
}

// quoted is a part of a path that a shell reads as it stands: whoever sends a heartbeat chooses the source's name.
const quoted = (name) => encodeURIComponent(name).replace(/[!'()*~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

// pingLines are a line of a crontab and one of a systemd unit, which report how a job ended.
function pingLines(s) {
  const key = token() && !s.labels?.ping ? 'key/YOUR-PING-KEY/' : ''; // a server with a token lets no sender in without one
  const path = s.labels?.ping ? `/ping/${quoted(s.labels.ping)}` : `/v1/ping/${key}${quoted(s.check)}/${quoted(s.source)}`;
  const url = window.location.origin + path;
  const curl = 'curl -fsS -m 10 --retry 5 -o /dev/null';
  // cron and systemd read a % as something of their own.
  return [
    el('p', 'sub', 'crontab(5); put your job in place of JOB:'),
    el('pre', '', `30 2 * * * JOB; ${curl} ${url.replaceAll('%', '\\%')}/$?`),
    el('p', 'sub', 'The [Service] section of the unit that a timer starts:'),
    el('pre', '', `ExecStopPost=-/bin/sh -c 'case "$$EXIT_STATUS" in ""|*[!0-9]*) s=fail;; *) s=$$EXIT_STATUS;; esac; exec ${curl} ${url.replaceAll('%', '%%')}/$$s'`),
  ];
}

// actions are what a person may do now.
function actions(s, done) {
  const again = () => { show(); done(); };
  const confirm = (verb, what, text, word, danger) => question({
    title: `${word} ${s.source}?`,
    what,
    text,
    ok: word,
    danger,
    act: async ({ by }) => {
      await act(s.check, s.source, verb, { by });
      return `${word}d ${s.source}.`;
    },
    done: again,
  });
  const line = el('div', 'line');
  if (s.alarm) line.append(button('Alarm', () => openAlarm(s.alarm, done)));
  if (s.state === 'paused') line.append(button('Resume…', () => confirm('resume', `It is checked again as a source of ${s.check}.`, 'It has a whole limit from now to send a heartbeat.', 'Resume', false)));
  else if (s.state !== 'retired') line.append(button('Pause…', () => askToPause(s.check, s.source, again)));
  if (s.state !== 'retired') line.append(button('Retire…', () => confirm('retire', 'It is no longer checked, and its open alarm ends.', 'A heartbeat brings it back.', 'Retire', true)));
  if (!s.alarm) line.append(button('Remove…', () => askToRemove.source(s, () => { byId('browse-close').click(); done(); })));
  line.append(anchor('quiet', 'History', 'history', 'monitor', s.check, ...s.source.split('/')));
  return line;
}

// badge shows the picture, and the address that other pages show it by, which needs no token. The server's
// token is sent with the request, which an image by itself would not do.
function badge(event, source, open) {
  const path = `${at(event, source)}/badge.svg`;
  const img = el('img', '');
  img.alt = `State of ${source}`;
  img.height = 20;
  ask(path).then((answer) => answer.blob()).then((blob) => {
    const url = URL.createObjectURL(blob);
    img.addEventListener('load', () => URL.revokeObjectURL(url), { once: true });
    img.src = url;
  }).catch((err) => { img.alt = err.message; });
  return el('div', 'badge', img, el('code', 'sub', `${window.location.origin}${open}`));
}

// subject is what an alarm is about.
export function subject(a) {
  if (a.source) return a.source;
  return `${a.group.slice(a.group.indexOf('/') + 1)} (${plural(a.members || 0, 'source', 'sources')})`;
}

// A job's alarm is of the check "job", and ends with a good run.
const ofJob = (a) => a.check === 'job';
const endText = (a) => (a.end === 'ABATED' && ofJob(a) ? 'a good run' : ends[a.end] || a.end);
const ends = { ABATED: 'a heartbeat or a changed check', retire: 'retired', forget: 'check removed' };

function alarmTable(alarms, none) {
  if (alarms.length === 0) return el('p', 'muted', none);
  const rows = alarms.map((a) => ({
    item: a,
    className: a.ended ? '' : 'bad',
    cells: [timeOf(a.started), subject(a), a.ended ? stateText(a.reason) : `${stateText(a.reason)}, open`, a.check, lasted(a), a.ended ? endText(a) : '', a.acknowledged || ''],
  }));
  return table(['Began', 'Source', 'Reason', 'Check', 'Lasted', 'Ended by', 'Acknowledged'], rows, (a) => openAlarm(a.id));
}

const lasted = (a) => (a.ended ? duration(new Date(a.ended) - new Date(a.started)) : '');

async function showAlarms(filter, cursor = '') {
  live = [];
  const { alarms, next } = await get(`/v1/alarms?${filter}limit=${page}${cursor}`);
  const none = cursor ? 'There are no more.' : filter ? 'No open alarms.' : 'No alarm was raised yet.';
  return paged([alarmTable(alarms, none)], next, (n) => showAlarms(filter, `&after=${encodeURIComponent(n)}`));
}

async function showAlarm(id, done) {
  live = [];
  const a = await get(`/v1/alarms/${encodeURIComponent(id)}`);
  const line = el('div', 'line');
  if (!a.ended && !a.acknowledged && !ofJob(a)) line.append(button('Acknowledge…', () => askToAcknowledge(a, () => { show(); done(); })));
  const labels = Object.entries(a.labels || {}).map(([k, v]) => `${k}=${v}`).join(', ');
  return [
    facts([['Source', a.source ? button(a.source, () => (ofJob(a) ? openJob(a.source, done) : openSource(a.check, a.source, done)), 'link') : ''], ['Check', a.check], ['Group', a.group || ''],
      ['Sources of the group', a.members ? count(a.members) : ''], ['Reason', stateText(a.reason)], ['Why', a.why || ''], ['Began', timeIf(a.started)], ['Found', timeIf(a.raised)],
      ['Ended', a.ended ? timeOf(a.ended) : 'still open'], ['Lasted', lasted(a)], ['Ended by', a.end ? endText(a) : ''],
      ['Acknowledged by', a.acknowledged || ''], ['Reminders', a.reminders ? count(a.reminders) : ''], ['Labels', labels], ['Request id', a.id]]),
    line,
  ];
}

export function askToAcknowledge(a, done = () => {}) {
  question({
    title: `Acknowledge the alarm of ${subject(a)}?`,
    what: `Check ${a.check}, ${a.reason}.`,
    text: 'Everyone sees that it is being handled, and no more reminders are sent. It stays open until the source returns.',
    ok: 'Acknowledge',
    act: async ({ by }) => {
      await acknowledge(a.id, by);
      return `Acknowledged the alarm of ${subject(a)}.`;
    },
    done,
  });
}

async function showRejected() {
  live = [];
  const { rejected, counts } = await get('/v1/monitor/rejected');
  if (rejected.length === 0) return [el('p', 'muted', 'This instance has understood every message since it started.')];
  const rows = rejected.map((l) => ({ item: l, cells: [timeOf(l.at), l.path, l.cause, l.detail] }));
  return [
    facts(Object.entries(counts).map(([cause, n]) => [cause, count(n)])),
    table(['At', 'Came by', 'Cause', 'Detail'], rows, (l) => open('One input', [['Rejected input', openRejected], [timeOf(l.at), () => {}]], () => [
      facts([['At', timeOf(l.at)], ['Came by', l.path], ['Cause', l.cause], ['Detail', l.detail]]),
      l.body ? el('pre', '', l.body) : el('p', 'muted', 'Its text was not kept.'),
    ])),
  ];
}
