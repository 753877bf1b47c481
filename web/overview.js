// The first page: is everything held, what needs an operator, what changed.

import { byId, coarse, count, el, keyed, plural, setText, timeOf } from './dom.js';
import { describe } from './history.js';
import { anchor, current, link, when } from './pages.js';
import { ask } from './stream.js';

const every = 2000; // ms between two looks at least

const parts = {
  role: { title: 'Roles', page: 'roles', held: 'have a primary', wrong: 'vacant' },
  job: { title: 'Jobs', page: 'jobs', held: 'have an instance that runs them', wrong: 'overdue' },
  shard: { title: 'Shards', page: 'shards', held: 'have a primary', wrong: 'without a primary' },
  queue: { title: 'Queues', page: 'queues', held: 'are delivered', wrong: 'without an instance' },
  monitor: { title: 'Monitor', page: 'monitor', held: 'partitions of sources are watched', wrong: 'not watched' },
  cache: { title: 'Cache', page: 'cache', held: 'peers are connected', wrong: 'alone' },
  store: { title: 'Store', page: 'instances' },
};

let asked = -every; // when it was looked at last
let looking = false;

when('overview', () => look());

// update is called when something may have changed.
export function update() {
  if (current() === 'overview' && !document.hidden && performance.now() - asked >= every) look();
}

async function look() {
  if (looking) return;
  looking = true;
  asked = performance.now();
  try {
    draw(await (await ask('/v1/overview')).json());
    document.body.classList.remove('overview-old');
  } catch (err) {
    errors([`The figures shown are old: ${err.message}`]);
    document.body.classList.add('overview-old');
  } finally {
    looking = false;
  }
}

function errors(list) {
  keyed(byId('overview-errors'), list, (t) => t, (t) => ({ element: el('li', '', t) }), () => {});
}

function draw(o) {
  errors(o.errors || []);
  const loose = o.held.reduce((n, h) => n + h.wrong.length + h.more, 0);
  const needs = o.needs.length + o.more_needs;
  const stuck = o.needs.some((n) => n.severity === 'bad');
  setText(byId('overview-summary'), [loose ? `${plural(loose, 'thing is', 'things are')} not held` : 'Everything is held',
    needs ? `${plural(needs, 'thing needs', 'things need')} attention` : 'no action needed'].join(', '));
  byId('overview').dataset.state = loose || stuck ? 'bad' : needs ? 'low' : 'good';
  drawHeld(o.held);
  drawNeeds(o, needs);
  drawChanges(o.changes);
}

function drawHeld(held) {
  keyed(byId('overview-held'), held, (h) => h.part, (h) => {
    const p = parts[h.part];
    const figure = el('span', 'figure');
    const words = el('span', 'sub');
    const wrong = el('ul', 'wrong');
    const element = el('li', 'held', el('div', 'line', anchor('name', p.title, p.page), figure), words, wrong);
    return { element, figure, words, wrong };
  }, (row, h) => {
    const p = parts[h.part];
    const loose = h.wrong.length + h.more;
    setText(row.figure, h.total ? `${count(h.held)} of ${h.first ? 'the first ' : ''}${count(h.total)}` : 'none');
    setText(row.words, h.total ? p.held : 'none has been held yet');
    row.element.dataset.state = loose ? 'bad' : h.total === 0 ? 'none' : h.held < h.total ? 'low' : 'good';
    const list = h.more > 0 ? [...h.wrong, { subject: '', what: `and ${count(h.more)} more ${p.wrong}` }] : h.wrong;
    keyed(row.wrong, list, (w) => w.subject, () => {
      const a = el('a', 'name');
      const what = el('span', 'sub');
      return { element: el('li', '', a, what), a, what };
    }, (line, w) => {
      setText(line.a, w.subject || p.title);
      line.a.href = link(p.page, w.subject);
      setText(line.what, w.what);
    });
    row.wrong.hidden = list.length === 0;
  });
}

// placeOf is where something is looked at.
function placeOf(n) {
  if (n.part === 'queue') return link('queues', n.subject, n.item || '', n.id || '');
  if (n.part === 'monitor' && n.id) return link('monitor', 'alarm', n.id);
  const p = parts[n.part];
  return p ? link(p.page, n.part === 'shard' || n.part === 'job' ? n.subject : '') : link('history');
}

const subjectOf = (n) => [n.subject, n.item].filter((t) => t).join(' · ') || (parts[n.part] || { title: n.part }).title;

function drawNeeds(o, total) {
  const list = byId('overview-needs');
  keyed(list, o.needs, (n) => [n.part, n.subject, n.item, n.id, n.what.replace(/\d+/g, '')].join('\n'), () => {
    const part = el('span', 'chip');
    const a = el('a', 'name');
    const what = el('p', 'sub');
    return { element: el('li', 'need', part, el('div', 'what', a, what)), part, a, what };
  }, (row, n) => {
    row.element.dataset.severity = n.severity;
    setText(row.part, (parts[n.part] || { title: n.part }).title);
    setText(row.a, subjectOf(n));
    row.a.href = placeOf(n);
    setText(row.what, n.what);
  });
  list.hidden = o.needs.length === 0;
  byId('overview-needs-empty').hidden = total > 0;
  setText(byId('overview-needs-more'), o.more_needs ? `and ${count(o.more_needs)} more, on the pages of their parts` : '');
}

function drawChanges(c) {
  const list = byId('overview-changes');
  keyed(list, c.groups, (g) => `${g.part} ${g.subject}`, () => {
    const time = el('time');
    const a = el('a', 'name');
    const words = el('span', '');
    const aside = el('span', 'sub');
    const many = el('span', 'chip');
    return { element: el('li', 'event', time, el('div', 'what', a, words, many, aside)), time, a, words, many, aside };
  }, (row, g) => {
    const { kind, words, aside } = describe(g.latest);
    row.element.className = `event ${kind}`;
    setText(row.time, timeOf(g.latest.at));
    row.time.dateTime = g.latest.at;
    setText(row.a, ['role', 'queue', 'monitor'].includes(g.part) ? g.subject : `${g.part} ${g.subject}`);
    row.a.href = link('history', g.part, ...g.subject.split('/'));
    setText(row.words, words);
    setText(row.many, `${count(g.count)} times`);
    row.many.hidden = g.count < 2;
    setText(row.aside, g.count > 1 ? `${aside}; the first ${coarse(new Date(g.latest.at) - new Date(g.first))} before` : aside);
  });
  list.hidden = c.groups.length === 0;
  byId('overview-changes-empty').hidden = c.groups.length > 0;
  setText(byId('overview-changes-summary'), c.total ? `${plural(c.total, 'event', 'events')}${c.more ? ', the latest shown' : ''}` : '');
}
