// Pictures of the last hour, or of the last minutes where there is no more yet: takeovers, replication lag, beats, queues. Each
// has its figures as a table, too.

import { byId, count, duration, el, keyed, setText, svg } from './dom.js';
import { current } from './pages.js';
import { ask } from './stream.js';

const every = 10_000; // ms: the server takes a point as often
const most = 8; // pictures on a page
const wide = 360; // units of a picture
const leastMinutes = 5; // that are drawn
const high = 72;

// wanted are the series of a page: by name, or all that begin so.
const wanted = {
  overview: ['takeover', 'lag', 'beats', 'depth'],
  roles: ['takeover/role/'],
  shards: ['takeover/shard/', 'lag/'],
  monitor: ['beats'],
  queues: ['depth/'],
};

const kinds = {
  takeover: { title: 'Takeovers', of: 'time without a holder; after a crash, from the end of its lease', stems: true, none: 'No takeover', say: (v) => duration(v) },
  lag: { title: 'Replication lag', of: 'how far replicas were behind; on Redis in bytes', none: 'No replica has reported', say: (v) => count(Math.round(v)) },
  beats: { title: 'Heartbeats', of: 'stored by this instance, per second', none: 'No heartbeats', say: (v) => `${v >= 10 ? count(Math.round(v)) : v.toFixed(1)} /s` },
  depth: { title: 'Queue depth', of: 'messages that are not final', none: 'No queue was counted', say: (v) => count(Math.round(v)) },
};

let shownOn = '';
let asked = 0; // when they were looked at last
let turn = 0;

// update is called often; it looks when it is time, or another page is shown.
export function update() {
  const page = current();
  if (!wanted[page] || document.hidden) return;
  if (page === shownOn && performance.now() - asked < every) return;
  shownOn = page;
  asked = performance.now();
  look(page);
}

window.addEventListener('page', update);

async function look(page) {
  const mine = ++turn;
  try {
    const all = (await (await ask('/v1/series')).json()).series.map((s) => s.name);
    const names = all.filter((n) => wanted[page].some((w) => (w.endsWith('/') ? n.startsWith(w) : n === w))).slice(0, most);
    let series = [];
    let step = every;
    if (names.length) {
      const query = new URLSearchParams(names.map((n) => ['name', n]));
      const answer = await (await ask(`/v1/series?${query}`)).json();
      series = answer.series;
      step = answer.every_ms;
    }
    if (mine === turn) draw(page, series, step);
  } catch { /* they stay as they are; the page says that the server is gone */ }
}

function draw(page, series, step) {
  const box = byId(`charts-${page}`);
  const order = (s) => wanted[page].findIndex((w) => s.name.startsWith(w));
  const minutes = span(series, step);
  keyed(box, series.sort((a, b) => order(a) - order(b)), (s) => s.name, create, (row, s) => fill(row, s, step, minutes));
  box.hidden = series.length === 0;
}

// span is the minutes that all pictures of a page show: back to the oldest point of any of them.
function span(series, step) {
  const age = ({ points }) => {
    const oldest = points.findIndex((p) => p !== null);
    return oldest < 0 ? 0 : points.length - oldest;
  };
  return Math.max(leastMinutes, Math.ceil(Math.max(0, ...series.map(age)) * step / 60_000));
}

let ids = 0;

function create(s) {
  const [kind, ...rest] = s.name.split('/');
  const k = kinds[kind];
  const id = `chart-${ids++}`;
  const subject = rest[rest.length - 1] || '';
  const now = el('strong', 'now');
  const heading = el('span', 'name', subject || k.title);
  heading.title = heading.textContent;
  const top = el('span');
  const from = el('span');
  const title = svg('title', { id: `${id}-title` });
  const desc = svg('desc', { id: `${id}-desc` });
  const path = svg('path', { class: k.stems ? 'stems' : 'curve' });
  const area = svg('path', { class: 'area' });
  const picture = svg('svg', { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: 'none', role: 'img', 'aria-labelledby': `${id}-title ${id}-desc` });
  title.textContent = subject ? `${k.title} of ${subject}` : k.title;
  picture.append(title, desc, area, path);
  const rows = el('tbody');
  const table = el('table', 'points', el('thead', '', el('tr', '', el('th', '', 'Minute'), el('th', '', `Highest (${s.unit})`))), rows);
  const details = el('details', '', el('summary', '', 'As a table'), table);
  const none = el('p', 'sub');
  const element = el('figure', 'chart card', el('figcaption', '', heading, now), el('p', 'sub', subject ? `${k.title}: ${k.of}` : k.of), el('div', 'plot', picture, el('div', 'axis sub', from, top, el('span', '', 'now')), details), none);
  const row = { element, k, now, top, from, desc, path, area, rows, details, none, plot: picture.parentElement };
  details.addEventListener('toggle', () => { if (details.open) fillTable(row); });
  return row;
}

function fill(row, s, step, minutes) {
  const slots = Math.round(minutes * 60_000 / step);
  const points = s.points.slice(-slots);
  row.points = points;
  row.step = step;
  const known = points.filter((p) => p !== null);
  const greatest = Math.max(0, ...known);
  const last = known[known.length - 1];
  const { say, stems } = row.k;
  const time = minutes < 60 ? `${minutes} minutes` : 'hour';
  setText(row.none, `${row.k.none} in the last ${time}.`);
  row.none.hidden = known.length > 0;
  row.plot.hidden = known.length === 0;
  setText(row.now, known.length ? (stems ? `latest ${say(last)}` : say(last)) : '');
  setText(row.top, known.length ? `at most ${say(greatest)}` : '');
  setText(row.from, minutes < 60 ? `${minutes} min ago` : 'an hour ago');
  setText(row.desc, known.length ? `In the last ${time}: at most ${say(greatest)}, at least ${say(Math.min(...known))}, the latest ${say(last)}.` : row.none.textContent);
  const unit = wide / slots;
  const x = (i) => (wide - (points.length - i - 0.5) * unit).toFixed(2);
  const y = (v) => (high - 2 - (high - 8) * (greatest > 0 ? v / greatest : 0)).toFixed(1);
  const parts = [];
  const areas = [];
  let from = -1;
  points.forEach((v, i) => {
    if (v === null) return;
    if (stems) {
      parts.push(`M${x(i)} ${high}V${y(v)}`);
      return;
    }
    const joined = from >= 0 && points[i - 1] !== null;
    if (!joined) from = i;
    parts.push(`${joined ? 'L' : 'M'}${x(i)} ${y(v)}${joined ? '' : 'h.6'}`);
    if (i === points.length - 1 || points[i + 1] === null) {
      areas.push(`M${x(from)} ${high}${points.slice(from, i + 1).map((p, n) => `L${x(from + n)} ${y(p)}`).join('')}V${high}Z`);
    }
  });
  row.path.setAttribute('d', parts.join(''));
  row.area.setAttribute('d', areas.join(''));
  if (row.details.open) fillTable(row);
}

const minute = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hour12: false });

function fillTable({ rows, points, step, k }) {
  const per = Math.max(1, Math.round(60_000 / step));
  const out = [];
  for (let end = points.length; end > 0; end -= per) {
    const some = points.slice(Math.max(0, end - per), end).filter((p) => p !== null);
    if (some.length === 0) continue;
    const at = new Date(Date.now() - (points.length - end) * step);
    out.push(el('tr', '', el('td', '', minute.format(at)), el('td', '', k.say(Math.max(...some)))));
  }
  rows.replaceChildren(...out);
}
