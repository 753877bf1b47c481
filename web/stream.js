// The event stream, read with fetch, because EventSource cannot send a token.

const key = 'understudy-token';
export const token = () => sessionStorage.getItem(key) || '';
export const setToken = (t) => (t ? sessionStorage.setItem(key, t) : sessionStorage.removeItem(key));

export class Unauthorized extends Error {}

// How long a request may take in all, in ms: as long as the server may. It ends an answer after 30 s, and the longest act,
// a removal, after 70 s.
const longest = { look: 30_000, act: 90_000 };

// ask sends one request and returns what the server answered; an answer that is
// an error becomes an Error with the server's own words. It has a deadline, or a signal of the caller's: on a connection that
// only drops packets an answer never comes, and the page would show old figures as if they were new.
export async function ask(path, options = {}) {
  // A browser takes these steps out of a path, escaped or not, and would ask about something else.
  if (path.split('?', 1)[0].split('/').some((step) => /^(\.|%2e){1,2}$/i.test(step))) throw new Error('A browser cannot send the name "." or "..": use the command line, such as understudy job or understudy queue.');
  const headers = { ...options.headers };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const signal = options.signal || AbortSignal.timeout(options.method ? longest.act : longest.look);
  const answer = await fetch(path, { cache: 'no-store', ...options, headers, signal });
  if (answer.ok) return answer;
  let problem = {};
  try { problem = await answer.json(); } catch { /* a proxy's page */ }
  const text = problem.detail || `${answer.status} ${answer.statusText}`;
  const err = answer.status === 401 ? new Unauthorized(text) : new Error(text);
  err.code = problem.code || '';
  throw err;
}

// get is what the server answers, as a value.
export const get = async (path) => (await ask(path)).json();

const silence = 10_000; // the state comes every second; this long without a byte is a dead link
const nap = 15_000; // a tab that nobody sees looks in so often

// follow reads a stream and calls on[event](data) for each event, and
// on.connected, on.lost and on.unauthorized, until stop is called. It comes back
// with the id of the last event that it saw.
//
// Without TLS a browser opens six connections to one server, for all its tabs together: a
// tab that nobody sees, or that was left, must not keep one. Events come before the state: once that has come,
// nothing is missed.
export function follow(on, last, path = '/v1/events?state=true') {
  let stopped = false;
  let abort = new AbortController();
  const leave = () => abort.abort();
  window.addEventListener('pagehide', leave);
  const run = async () => {
    for (let pause = 500; !stopped; pause = Math.min(2 * pause, 5000)) {
      abort = new AbortController();
      let unseen = false; // all has come, and nobody looks
      const slow = setTimeout(leave, silence);
      try {
        const headers = last === null ? {} : { 'Last-Event-ID': String(last) };
        const answer = await ask(path, { headers, signal: abort.signal });
        clearTimeout(slow);
        on.connected();
        pause = 250;
        for await (const { event, id, data } of parse(answer.body, leave)) {
          if (id) last = id;
          if (on[event]) hand(on[event], JSON.parse(data));
          unseen = event === 'state' && document.hidden;
          if (unseen) break;
        }
      } catch (err) {
        if (stopped) return;
        if (err instanceof Unauthorized) return on.unauthorized(err);
      } finally {
        clearTimeout(slow);
      }
      if (stopped) return;
      leave();
      if (!unseen) on.lost();
      await rest((unseen ? nap : pause) * (0.75 + Math.random() / 2));
    }
  };
  run();
  return () => {
    stopped = true;
    window.removeEventListener('pagehide', leave);
    leave();
  };
}

// hand gives an event away. What the page does wrong with it is no fault of the connection.
function hand(to, data) {
  try { to(data); } catch (err) { reportError(err); }
}

// rest waits, but no longer when the network comes back or somebody looks again.
const rest = (ms) => new Promise((done) => {
  let timer = 0;
  const end = () => {
    clearTimeout(timer);
    window.removeEventListener('online', end);
    document.removeEventListener('visibilitychange', end);
    done();
  };
  timer = setTimeout(end, ms);
  window.addEventListener('online', end);
  document.addEventListener('visibilitychange', end);
});

// parse splits a body into server-sent events.
async function* parse(body, dead) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let watchdog = setTimeout(dead, silence);
  try {
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(dead, silence);
      rest += value;
      const blocks = rest.split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const e = { event: 'message', id: '', data: '' };
        for (const line of block.split('\n')) {
          const colon = line.indexOf(': ');
          if (colon > 0) e[line.slice(0, colon)] = line.slice(colon + 2);
        }
        if (e.data) yield e;
      }
    }
  } finally {
    clearTimeout(watchdog);
  }
}
