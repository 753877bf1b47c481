// Small helpers. Text from the store becomes text nodes and nothing else.

export const byId = (id) => document.getElementById(id);

// el makes an element with a class and children; strings become text.
export function el(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ''));
  return e;
}

// svg makes an element of a picture.
export function svg(tag, attributes, text = '') {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
  e.textContent = text;
  return e;
}

export function button(text, go, className = 'quiet') {
  const b = el('button', className, text);
  b.type = 'button';
  b.addEventListener('click', go);
  return b;
}

// facts are pairs of a name and a value; those without a value are left out.
export const facts = (pairs) => el('dl', 'facts', ...pairs.filter(([, v]) => v !== '' && v !== undefined)
  .map(([name, value]) => el('div', '', el('dt', '', name), el('dd', '', value))));

// figureBoxes are what shows the values of figures, each within a box with its name. A figure is a name, a value and what it means.
export const figureBoxes = (figures) => figures.map(([name, , meaning]) => {
  const dd = el('dd');
  const box = el('div', '', el('dt', '', name), dd);
  if (typeof meaning === 'string') box.title = meaning;
  return dd;
});

// setText writes only what differs, so that a selection and a screen reader are
// not disturbed every second.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

export function setTitle(e, text) {
  if (e.title !== text) e.title = text;
}

// keyed makes the children of a list match the items: one element for each key,
// kept for as long as the key is there, so that focus stays where it is.
export function keyed(list, items, key, create, update) {
  const old = list.rows || new Map();
  const rows = new Map();
  let at = list.firstElementChild;
  for (const item of items) {
    const k = key(item);
    const row = old.get(k) || create(item);
    rows.set(k, row);
    if (row.element === at) at = at.nextElementSibling;
    else list.insertBefore(row.element, at);
    update(row, item);
  }
  for (const [k, row] of old) if (!rows.has(k)) row.element.remove();
  list.rows = rows;
}

// duration in words that people use: three figures are enough.
export function duration(ms) {
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

// coarse is a duration that is counted up on the page: no tenths that flicker.
export function coarse(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });

// timeOf is the time of day, with the date if that is not today.
export function timeOf(iso) {
  const t = new Date(iso);
  const today = t.toDateString() === new Date().toDateString();
  return today ? clock.format(t) : `${day.format(t)} ${clock.format(t)}`;
}

// count is a number with its thousands apart.
export const count = (n) => numbers.format(n);
const numbers = new Intl.NumberFormat('en');

// meter tells by how much a count has grown in a second, over the last ten, or since the one before if that is older; null until that
// is known. It starts again with a count that has fallen, with a clock that was set back, and with one that comes after a long silence.
export function meter() {
  const span = 10_000; // ms
  const silence = 180_000; // ms: longer than between two readings of a store that is slow
  let seen = []; // oldest first
  return (n, at = performance.now()) => {
    const last = seen.length - 1;
    seen = last >= 0 && (seen[last].n > n || seen[last].at > at) ? [] : seen.filter((one, i) => at - one.at <= (i < last ? span : silence));
    seen.push({ at, n });
    return at > seen[0].at ? (1000 * (n - seen[0].n)) / (at - seen[0].at) : null;
  };
}

// perSecond is such a rate in words.
export const perSecond = (rate) => (rate === null ? '–' : `${rate >= 100 ? count(Math.round(rate)) : rate >= 10 || rate === 0 ? rate.toFixed(0) : rate.toFixed(1)} /s`);

// say tells for a moment what was done.
let quiet = 0;
export function say(text) {
  const said = byId('said');
  said.textContent = text;
  said.hidden = false;
  clearTimeout(quiet);
  quiet = setTimeout(() => { said.hidden = true; }, 5000);
}

export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;
