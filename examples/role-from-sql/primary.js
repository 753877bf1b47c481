const { Client } = require('pg'); // npm install pg
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

(async () => {
  // A database that has gone silent ends this program, and its supervisor starts it again.
  const db = new Client({ connectionString: process.env.DATABASE_URL, connectionTimeoutMillis: 4000, query_timeout: 4000 });
  await db.connect();
  const one = async (sql, ...args) => (await db.query(sql, args)).rows[0];
  let role = { attempt: null }, sent;
  for (;;) {
    sent = performance.now();
    role = await one("SELECT term, state, session, wait_ms, attempt FROM understudy.acquire('report', $1, $2)", process.argv[2], role.attempt);
    if (role.term) break;
    await sleep(role.wait_ms);
  }

  let done = Number(role.state || 0);
  console.log('primary', role.term, 'from', done);
  while (performance.now() < sent + 4000) {
    done += 1; // one piece of work
    await one("SELECT understudy.state('report', $1, $2)", role.term, Buffer.from(String(done)));
    const now = performance.now();
    if ((await one('SELECT understudy.renew($1)', role.session)).renew !== 'ok') break;
    sent = now;
    await sleep(1000);
  }
  await one('SELECT understudy.release($1)', role.session);
  await db.end();
})();
