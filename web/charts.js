// Pictures of the last hour: takeovers, replication lag, beats, queues. Each has its
// figures as a table, too.

import { byId, count, duration, el, keyed, setText } from './dom.js';
import { current } from './pages.js';
import { ask } from './stream.js';

const every = 10_000; // ms: the server takes a point as often
const most = 8; // pictures on a page
const space = 'http://www.w3.org/2000/svg';
const wide = 360; // points
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
  takeover: { title: 'Takeovers', of: 'time without a holder; after a crash, from the end of its lease', stems: true, none: 'No takeover in the last hour.', say: (v) => duration(v) },
  lag: { title: 'Replication lag', of: 'how far replicas were behind; on Redis in bytes', none: 'No replica has reported yet.', say: (v) => count(Math.round(v)) },
  beats: { title: 'Heartbeats', of: 'stored by this instance, per second', none: 'No heartbeats yet.', say: (v) => `${v >= 10 ? count(Math.round(v)) : v.toFixed(1)} /s` },
  depth: { title: 'Queue depth', of: 'messages that are not final', none: 'No queue has been counted yet.', say: (v) => count(Math.round(v)) },
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
  keyed(box, series.sort((a, b) => order(a) - order(b)), (s) => s.name, create, (row, s) => fill(row, s, step));
  box.hidden = series.length === 0;
}

let ids = 0;

function svg(tag, attributes) {
  const e = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
  return e;
}

function create(s) {
  const [kind, ...rest] = s.name.split('/');
  const k = kinds[kind];
  const id = `chart-${ids++}`;
  const subject = rest[rest.length - 1] || '';
  const now = el('strong', 'now');
  const heading = el('span', 'name', subject || k.title);
  heading.title = heading.textContent;
  const top = el('span');
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
  const none = el('p', 'sub', k.none);
  const element = el('figure', 'chart card', el('figcaption', '', heading, now), el('p', 'sub', subject ? `${k.title}: ${k.of}` : k.of), el('div', 'plot', picture, el('div', 'axis sub', el('span', '', 'an hour ago'), top, el('span', '', 'now')), details), none);
  const row = { element, k, now, top, desc, path, area, rows, details, none, plot: picture.parentElement };
  details.addEventListener('toggle', () => { if (details.open) fillTable(row); });
  return row;
}

function fill(row, s, step) {
  row.points = s.points;
  row.step = step;
  const known = s.points.filter((p) => p !== null);
  const greatest = Math.max(0, ...known);
  const last = known[known.length - 1];
  const { say, stems } = row.k;
  row.none.hidden = known.length > 0;
  row.plot.hidden = known.length === 0;
  setText(row.now, known.length ? (stems ? `latest ${say(last)}` : say(last)) : '');
  setText(row.top, known.length ? `at most ${say(greatest)}` : '');
  setText(row.desc, known.length ? `In the last hour: at most ${say(greatest)}, at least ${say(Math.min(...known))}, the latest ${say(last)}.` : row.k.none);
  const x = (i) => wide - s.points.length + i + 0.5;
  const y = (v) => (high - 2 - (high - 8) * (greatest > 0 ? v / greatest : 0)).toFixed(1);
  const parts = [];
  const areas = [];
  let from = -1;
  s.points.forEach((v, i) => {
    if (v === null) return;
    if (stems) {
      parts.push(`M${x(i)} ${high}V${y(v)}`);
      return;
    }
    const joined = from >= 0 && s.points[i - 1] !== null;
    if (!joined) from = i;
    parts.push(`${joined ? 'L' : 'M'}${x(i)} ${y(v)}${joined ? '' : 'h.6'}`);
    if (i === s.points.length - 1 || s.points[i + 1] === null) {
      areas.push(`M${x(from)} ${high}${s.points.slice(from, i + 1).map((p, n) => `L${x(from + n)} ${y(p)}`).join('')}V${high}Z`);
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
