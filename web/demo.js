// The demonstration's part of the overview: what can be killed, who is at work, and what came of it beside the promise.
// A server that is not of a demonstration has none of it.

import { byId, button, el, keyed, say, setText, setTitle, timeOf } from './dom.js';
import { current } from './pages.js';
import { ask, get } from './stream.js';
import { remoteClock, show, timeline } from './timeline.js';

const every = 500; // ms between two looks
const wide = 60_000; // ms that a timeline shows
const most = 12; // lines of what happened

const parts = {
  role: { title: 'Role', text: 'One of three instances holds it.' },
  queue: { title: 'Queue', text: 'Messages of eight keys, in order; each key at one instance.' },
  monitor: { title: 'Monitor', text: 'A machine must send heartbeats; its alarm is the second lane.' },
  cache: { title: 'Cache', text: 'A slow value, fetched once for everyone who waits.' },
  shard: { title: 'Shard', text: 'Three Redis nodes under a writer, which counts what it loses.' },
};
const kinds = { ended: 'killed', frozen: 'frozen', asked: 'asked' };

let on = false;
const clock = remoteClock(); // of the demonstration
const seconds = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(ms % 1000 ? 2 : 0)} s`);

// update is told the parts of the server once a second.
export function update(offered) {
  if (on || !offered.includes('demo')) return;
  on = true;
  byId('demo').hidden = false;
  look();
}

async function look() {
  try {
    if (current() === 'overview' && !document.hidden) draw(await get('/v1/demo'));
  } catch { /* the page says that the server is gone */ }
  setTimeout(look, every);
}

function draw({ now_ms: now, auto, parts: list }) {
  clock.sync(now);
  setText(byId('demo-about'), auto ? 'It kills by itself. The last minute; now is on the right.' : 'Kill any process and watch it recover. The last minute; now is on the right.');
  keyed(byId('demo-parts'), list, (p) => p.part, create, fill);
  drawLog(list);
}

function create({ part }) {
  const { title, text } = parts[part];
  const line = timeline(wide, clock);
  const row = { title, line, buttons: el('div', 'line acts'), result: el('p', 'result') };
  row.element = el('li', 'timed', el('div', '', el('h4', 'name', title), el('p', 'sub', text), row.buttons), el('div', '', line.element, row.result));
  return row;
}

function fill(row, p) {
  drawOffers(row, p.offers);
  show(row.line, { label: inWords(p), ...picture(p) });
  const last = p.outcomes[p.outcomes.length - 1];
  row.result.dataset.state = last ? (last.kept ? 'good' : 'bad') : '';
  setText(row.result, last ? outcome(last) : 'No result yet.');
}

function drawOffers(row, offers) {
  keyed(row.buttons, offers, (o) => o.id, () => {
    const b = { element: button('', () => act(b.offer)) };
    return b;
  }, (b, o) => {
    b.offer = o;
    setText(b.element, o.title);
    b.element.setAttribute('aria-label', `${o.title}, ${row.title}`);
    setTitle(b.element, `${o.text}${o.promised_ms ? ` within ${seconds(o.promised_ms)}` : ''}. In a terminal: ${o.command}`);
    b.element.setAttribute('aria-disabled', String(Boolean(o.off))); // not disabled: the focus stays where it is
  });
}

async function act(o) {
  try {
    if (o.off) throw new Error(`not now: ${o.off}.`);
    await ask(`/v1/demo/${encodeURIComponent(o.id)}`, { method: 'POST' });
    const promise = o.text.slice(o.text.indexOf(': ') + 2); // before it stands what is the case now
    say(`${o.title}: done.${o.promised_ms ? ` Promised within ${seconds(o.promised_ms)}: ${promise}.` : ''}`);
  } catch (err) {
    say(`${o.title}: ${err.message}`);
  }
}

// picture is what the timeline shows of a part.
function picture(p) {
  const down = (name) => {
    const out = [];
    for (const m of p.marks.filter((one) => one.lane === name && one.kind !== 'asked')) {
      if (out.length && out[out.length - 1].to === null) out[out.length - 1].to = m.at_ms;
      if (m.kind !== 'back') out.push({ from: m.at_ms, to: null, kind: m.kind });
    }
    return out;
  };
  return {
    lanes: p.lanes.map((l) => ({ name: l.name, down: down(l.name), spans: l.spans.map((s) => ({ from: s.from_ms, to: s.open ? null : s.to_ms })) })),
    marks: p.marks.filter((m) => m.kind !== 'back').map((m) => ({ lane: m.lane, at: m.at_ms, text: kinds[m.kind] })),
    gaps: p.outcomes.filter((o) => o.took_ms !== undefined).map((o) => ({ from: o.at_ms - o.took_ms, to: o.at_ms, text: seconds(o.took_ms) })),
  };
}

function inWords(p) {
  const open = p.lanes.filter((l) => l.spans.some((s) => s.open)).map((l) => l.name);
  const away = p.lanes.filter((l) => ['ended', 'frozen'].includes((p.marks.filter((m) => m.lane === l.name).pop() || {}).kind)).map((l) => l.name);
  return `${parts[p.part].title}: ${open.length ? `${open.join(', ')} at work` : 'nobody at work'}${away.length ? `; killed or frozen: ${away.join(', ')}` : ''}.`;
}

function outcome(o) {
  const measured = o.took_ms === undefined ? '' : `: measured ${seconds(o.took_ms)}`;
  const promised = o.promised_ms ? `, promised ≤ ${seconds(o.promised_ms)}` : '';
  return `${o.kept ? '✓' : '✗'} ${o.text}${measured}${promised}`;
}

// drawLog says in words what the timelines show.
function drawLog(list) {
  const marks = new Map(list.flatMap((p) => p.marks).map((m) => [m.id, m])); // one process works for several parts
  const lines = [
    ...[...marks.values()].map((m) => ({ ...m, kind: m.kind === 'back' ? 'taken' : 'lapsed', text: `${m.lane} ${m.kind === 'back' ? 'is back' : kinds[m.kind]}` })),
    ...list.flatMap((p) => p.outcomes).map((o) => ({ ...o, kind: o.kept ? 'taken' : 'lapsed', text: `${parts[o.part].title}: ${outcome(o)}` })),
  ].sort((a, b) => b.id - a.id).slice(0, most);
  const log = byId('demo-log');
  keyed(log, lines, (l) => l.id, (l) => {
    const time = el('time', '', timeOf(new Date(l.at_ms).toISOString()));
    return { element: el('li', `event ${l.kind}`, time, el('span', 'what', l.text)) };
  }, () => {});
  log.hidden = lines.length === 0;
}
