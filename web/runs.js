// What the window shows of a job: its runs, a day and a month at a glance, and the output of one.

import { coarse, count, duration, el, facts, setText, svg, timeOf } from './dom.js';
import { open, paged, show, table } from './browse.js';
import { get } from './stream.js';

const rows = 100; // runs of one page of the table
const most = 10; // pages of 1000 runs that the pictures are made of
const days = 31;
const hour = 3_600_000;
const day = 24 * hour;

export const path = (name) => `/v1/jobs/${encodeURIComponent(name)}`;

export const openJob = (name, done = () => {}) => open('A job', [[name, () => openJob(name, done)]], () => showJob(name));

export const openRun = (name, scheduled) => open('A run of a job', [[name, () => openJob(name)], [timeOf(scheduled), () => openRun(name, scheduled)]],
  () => showRun(name, scheduled));

export const stateText = (s) => s.replace('_', ' ');

// alarmText says since when the alarm of a job stands, and whether its receivers know, or that there are none; '' if none stands.
export function alarmText({ alarm: a }) {
  if (!a || a.cleared) return '';
  const sent = a.sent ? 'sent' : a.no_sink ? 'not sent: no sink is set. Start the job with --alarm URL, or give the monitor a sink' : a.tries ? `not sent in ${count(a.tries)} tries` : 'not sent yet';
  return `alarm since ${timeOf(a.raised)}: ${stateText(a.reason)}, ${sent}`;
}

const formats = new Map(); // by zone: they cost much to make

function formatIn(zone) {
  if (!formats.has(zone)) formats.set(zone, new Intl.DateTimeFormat(undefined, { timeZone: zone, weekday: 'short', hour: '2-digit', minute: '2-digit', hour12: false }));
  return formats.get(zone);
}

// zoned is a time in the zone of a schedule, where that is not the reader's.
export function zoned(schedule, iso) {
  const zone = (/^TZ=(\S+) /.exec(schedule) || [])[1] || 'UTC';
  try {
    const text = formatIn(zone).format(new Date(iso));
    return text === formatIn(undefined).format(new Date(iso)) ? '' : `${text} in ${zone}`;
  } catch { // a zone that this browser does not know
    return '';
  }
}

async function showJob(name) {
  const j = await get(path(name));
  const pictures = el('div', 'glance', el('p', 'muted', 'One moment…'));
  glance(name, pictures);
  const rules = [`overlap ${j.overlap}`, `missed ${j.missed}`, j.retries ? `${count(j.retries)} retries` : '', j.deadline_ms ? `deadline ${duration(j.deadline_ms)}` : '',
    j.jitter_ms ? `jitter ${duration(j.jitter_ms)}` : ''].filter((t) => t).join(', ');
  const ended = Object.entries(j.ended).map(([s, n]) => `${count(n)} ${stateText(s)}`).join(', ');
  return [
    facts([['State', j.state + (j.paused_by ? ` by ${j.paused_by}` : '')], ['Alarm', alarmText(j)], ['Schedule', el('code', '', j.schedule)], ['Rules', rules], ['Ended so far', ended],
      ['Next', j.next.slice(0, 3).map((at) => [timeOf(at), zoned(j.schedule, at)].filter((t) => t).join(', ')).join(' · ')]]),
    pictures,
    el('h3', '', 'Runs'),
    ...await runTable(name),
  ];
}

async function runTable(name, before = '') {
  const { runs, next } = await get(`${path(name)}/runs?limit=${rows}${before ? `&before=${encodeURIComponent(before)}` : ''}`);
  if (runs.length === 0) return [el('p', 'muted', before ? 'There are no more.' : 'It has not run yet.')];
  const all = runs.map((r) => ({
    item: r,
    className: isBad(r) ? 'bad' : '',
    cells: [timeOf(r.scheduled), r.instance || '', stateText(r.state), r.started ? duration(r.late_ms) : '', r.started ? duration(r.duration_ms) : '',
      r.attempt > 1 ? r.attempt : '', r.trigger ? [`triggered by ${r.trigger}`, r.why].filter((t) => t).join('; ') : r.why || ''],
  }));
  return paged([table(['Scheduled', 'On', 'State', 'Late', 'Took', 'Attempt', 'Why'], all, (r) => openRun(name, r.scheduled))], next, (n) => runTable(name, n));
}

const isBad = (r) => ['failed', 'timed_out', 'lost', 'missed'].includes(r.state);
const late = 60_000; // ms after which a start counts as late
const kindOf = (r) => (r.state === 'running' || r.state === 'queued' ? 'on' : isBad(r) ? 'bad' : ['skipped', 'cancelled'].includes(r.state) ? 'none' : r.late_ms > late ? 'late' : 'good');

// glance draws the last day and the last month, of as many runs as there are, and a few thousand at most.
async function glance(name, into) {
  const now = Date.now();
  const all = [];
  try {
    let before = '';
    for (let n = 0; n < most; n++) {
      const { runs, next } = await get(`${path(name)}/runs?limit=1000${before ? `&before=${encodeURIComponent(before)}` : ''}`);
      all.push(...runs);
      const oldest = runs.length ? new Date(runs[runs.length - 1].scheduled) : now;
      if (!next || now - oldest > days * day || !into.isConnected && n > 0) break;
      before = next;
    }
  } catch (err) {
    into.replaceChildren(el('p', 'bad-text', err.message));
    return;
  }
  into.replaceChildren(...(all.length ? [el('h3', '', 'The last 24 hours'), lastDay(name, all, now), el('h3', '', 'The last month'), lastMonth(all, now), legend()] : []));
}

const summary = (runs) => {
  const n = {};
  for (const r of runs) n[r.state] = (n[r.state] || 0) + 1;
  return Object.entries(n).map(([s, k]) => `${count(k)} ${stateText(s)}`).join(', ') || 'no run';
};

// lastDay is a line on which each run stands at its time, as long as it took.
function lastDay(name, all, now) {
  const wide = Math.max(320, Math.min(960, window.innerWidth - 60)); // so that its words are as large as others
  const runs = all.filter((r) => now - new Date(r.scheduled) < day);
  const picture = svg('svg', { class: 'day', viewBox: `0 0 ${wide} 44`, role: 'img', 'aria-label': `The last 24 hours: ${summary(runs)}` });
  const x = (t) => wide * (1 - (now - t) / day);
  const first = new Date(now - day);
  first.setMinutes(0, 0, 0);
  for (let t = first.getTime() + hour; t <= now; t += hour) {
    const h = new Date(t).getHours();
    picture.append(svg('line', { x1: x(t), x2: x(t), y1: h % 6 ? 26 : 0, y2: 30 }));
    if (h % 6 === 0 && x(t) < wide - 24) {
      picture.append(svg('text', { x: x(t) + 3, y: 42 }, `${h}:00`));
    }
  }
  for (const r of runs.reverse()) {
    const start = new Date(r.started || r.scheduled).getTime();
    const took = r.started ? r.duration_ms : 0;
    const title = `${timeOf(r.scheduled)}: ${stateText(r.state)}${r.instance ? ` on ${r.instance}` : ''}${r.started ? `, ${coarse(r.late_ms)} late, took ${duration(took)}` : ''}`;
    const bar = svg('rect', { class: kindOf(r), x: Math.max(0, x(start)), y: 6, height: 20, width: Math.max(3, wide * took / day), rx: 1 });
    bar.append(svg('title', {}, title));
    picture.append(bar);
  }
  return picture;
}

// lastMonth is a field for each day, and in it the worst that happened.
function lastMonth(all, now) {
  const of = (t) => { const d = new Date(t); d.setHours(0, 0, 0, 0); return d.getTime(); };
  const byDay = new Map();
  for (const r of all) {
    const d = of(r.scheduled);
    if (!byDay.has(d)) byDay.set(d, []);
    byDay.get(d).push(r);
  }
  const oldest = of(all[all.length - 1].scheduled);
  const fields = [];
  for (let n = days - 1; n >= 0; n--) {
    const d = new Date(now);
    d.setHours(0, 0, 0, 0);
    d.setDate(d.getDate() - n);
    const runs = byDay.get(d.getTime()) || [];
    const kinds = new Set(runs.map(kindOf));
    const kind = ['bad', 'late', 'on', 'good', 'none'].find((k) => kinds.has(k)) || 'empty';
    const cell = el('li', kind, el('span', '', String(d.getDate())));
    const bad = runs.filter(isBad).length;
    cell.append(el('span', 'sub', runs.length ? (bad ? `${count(bad)}/${count(runs.length)}` : count(runs.length)) : ''));
    cell.title = `${d.toLocaleDateString()}: ${runs.length ? summary(runs) : d.getTime() < oldest ? 'not kept' : 'no run'}`;
    fields.push(cell);
  }
  const list = el('ol', 'month', ...fields);
  list.setAttribute('aria-label', 'Runs of each of the last 31 days');
  return list;
}

const legend = () => el('p', 'sub legend', ...[['good', 'ran'], ['late', 'over a minute late'], ['bad', 'failed, timed out, lost or missed'], ['none', 'skipped or cancelled'], ['on', 'running']]
  .map(([kind, text]) => el('span', kind, text)));

async function showRun(name, scheduled) {
  const r = await get(`${path(name)}/runs/${encodeURIComponent(scheduled)}`);
  const bytes = Uint8Array.from(atob(r.output || ''), (c) => c.charCodeAt(0));
  const output = el('pre', '');
  setText(output, new TextDecoder().decode(bytes));
  const cut = r.total_bytes > bytes.length ? `the last ${count(bytes.length)} of ${count(r.total_bytes)} bytes` : `${count(r.total_bytes)} bytes`;
  const again = setTimeout(() => { if (output.isConnected && !r.ended) show(); }, 2000); // while it runs
  if (r.ended) clearTimeout(again);
  return [
    facts([['State', stateText(r.state)], ['Scheduled', timeOf(r.scheduled)], ['Triggered by', r.trigger || ''], ['On', r.instance || ''], ['Started', r.started ? timeOf(r.started) : ''],
      ['Late', r.started ? duration(r.late_ms) : ''], ['Took', r.started ? duration(r.duration_ms) : ''], ['Ended', r.ended ? timeOf(r.ended) : ''], ['Attempt', r.attempt ? String(r.attempt) : ''],
      ['Term', r.term ? String(r.term) : ''], ['Exit code', r.exit_code ? String(r.exit_code) : ''], ['Why', r.why || '']]),
    el('h3', '', `Output, ${cut}`),
    bytes.length ? output : el('p', 'muted', 'It has written nothing, or its output is no longer kept.'),
  ];
}
