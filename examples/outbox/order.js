// DATABASE_URL=postgres://… node order.js ID CUSTOMER PIECES: an order and its message, in one transaction.
const { Client } = require('pg'); // npm install pg

(async () => {
  const [id, customer, pieces] = process.argv.slice(2);
  const db = new Client({ connectionString: process.env.DATABASE_URL, connectionTimeoutMillis: 10000 });
  await db.connect();
  try {
    await db.query('BEGIN');
    await db.query("SELECT understudy.enqueue('orders', $1, $2, $3)", [customer, Buffer.from(`${pieces} pieces`), id]);
    await db.query('INSERT INTO orders VALUES ($1, $2, $3)', [id, customer, pieces]);
    await db.query('COMMIT');
  } finally {
    await db.end(); // what was not committed is rolled back
  }
})();
