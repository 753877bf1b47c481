// The pages of the dashboard: the address after the # says which is shown, and what of it.
//   #/roles  #/roles/billing  #/history/role/billing

import { byId, el } from './dom.js';

// pages in order, with the sections of each. One is offered when the server says that its part is
// configured. The part store is there wherever a store is.
const pages = [
  { id: 'overview', title: 'Overview', part: 'store' },
  { id: 'roles', title: 'Roles', part: 'roles' },
  { id: 'jobs', title: 'Jobs', part: 'jobs' },
  { id: 'shards', title: 'Shards', part: 'shards' },
  { id: 'monitor', title: 'Monitor', part: 'monitor' },
  { id: 'queues', title: 'Queues', part: 'queues' },
  { id: 'cache', title: 'Cache', part: 'cache' },
  { id: 'instances', title: 'Instances', part: 'store' },
  { id: 'history', title: 'History', part: 'store' },
];

const sections = { cache: ['cache', 'cache-log'], instances: ['instances', 'server'] };

let offered = [];
let shown = null; // the page, and what of it
let sought = ''; // a row that is to be brought into view as soon as it is there
const openers = new Map(); // what a page does with the rest of its address

// link is the address of a page, or of something on it.
export const link = (page, ...rest) => `#/${[page, ...rest.filter((r) => r !== '')].map(encodeURIComponent).join('/')}`;

// anchor is a link to it.
export function anchor(className, text, page, ...rest) {
  const a = el('a', className, text);
  a.href = link(page, ...rest);
  return a;
}

// when says what a page does when it is opened; what comes after its name is handed over.
export const when = (page, open) => openers.set(page, open);

export const current = () => (shown ? shown.id : '');
export const currentTitle = () => (shown ? shown.title : '');

// parse reads the address. Earlier addresses were names alone.
function parse() {
  const hash = window.location.hash.replace(/^#\/?/, '').replace(/^cache-log$/, 'cache');
  const [id, ...rest] = hash.split('/').map((p) => {
    try { return decodeURIComponent(p); } catch { return p; }
  });
  return { id, rest };
}

// offer shows the pages of the parts that there are.
export function offer(parts) {
  const now = pages.filter((p) => parts.includes(p.part));
  if (now.map((p) => p.id).join() === offered.map((p) => p.id).join()) return;
  offered = now;
  byId('sections').replaceChildren(...offered.map((p) => {
    const a = anchor('', p.title, p.id);
    a.dataset.page = p.id;
    return a;
  }));
  go(false);
}

function go(byHand) {
  if (offered.length === 0) return;
  const { id, rest } = parse();
  const page = offered.find((p) => p.id === id) || offered[0];
  const another = !shown || shown.id !== page.id;
  shown = page;
  for (const p of pages) for (const s of sections[p.id] || [p.id]) byId(s).hidden = p !== page;
  for (const a of byId('sections').children) {
    if (a.dataset.page === page.id) {
      a.setAttribute('aria-current', 'page');
    } else a.removeAttribute('aria-current');
  }
  reveal();
  document.body.dataset.page = page.id;
  sought = page.id === id ? rest[0] || '' : '';
  if (byHand) {
    if (byId('browse').open) byId('browse').close();
    if (another) window.scrollTo(0, 0);
    const title = byId(`${page.id}-title`);
    title.tabIndex = -1;
    title.focus({ preventScroll: true });
  }
  const open = openers.get(page.id);
  if (open) open(page.id === id ? rest : [], byHand);
  seek();
  window.dispatchEvent(new Event('page'));
}

// reveal scrolls the navigation, where it is too narrow for all, to the page that is shown.
function reveal() {
  const nav = byId('sections');
  const a = nav.querySelector('[aria-current]');
  if (a) nav.scrollLeft = a.offsetLeft - nav.offsetLeft - (nav.clientWidth - a.offsetWidth) / 2;
}

// seek brings the row that the address names into view, once it is there.
export function seek() {
  if (!sought || !shown) return;
  const list = byId(`${shown.id}-list`);
  const row = list && list.rows && list.rows.get(sought);
  if (!row) return;
  sought = '';
  row.element.tabIndex = -1;
  row.element.scrollIntoView({ block: 'center' });
  row.element.focus({ preventScroll: true });
  row.element.classList.add('sought');
  row.element.addEventListener('blur', () => row.element.classList.remove('sought'), { once: true });
}

// leave forgets what of the page was shown, so that the same link leads there again.
export function leave() {
  const { id, rest } = parse();
  if (shown && id === shown.id && (rest[1] || id === 'monitor' || id === 'jobs')) window.history.replaceState(null, '', link(id));
}

window.addEventListener('hashchange', () => go(true));
window.addEventListener('resize', reveal);

// The skip link leads past the navigation, and is not an address.
document.querySelector('.skip').addEventListener('click', (e) => {
  e.preventDefault();
  byId('main').focus();
});
