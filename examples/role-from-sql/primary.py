import os, signal, sys, time
import psycopg  # pip install "psycopg[binary]"

def one(sql, *args):
    signal.alarm(4)  # a database that has gone silent ends this program, and its supervisor starts it again
    row = db.execute(sql, args).fetchone()
    signal.alarm(0)
    return row

db = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, connect_timeout=4)
attempt = None
while True:
    sent = time.monotonic()
    term, state, session, wait_ms, attempt = one(
        "SELECT term, state, session, wait_ms, attempt FROM understudy.acquire('report', %s, %s)", sys.argv[1], attempt)
    if term:
        break
    time.sleep(wait_ms / 1000)

done = int(state or 0)
print("primary", term, "from", done, flush=True)
while time.monotonic() < sent + 4:
    done += 1  # one piece of work
    one("SELECT understudy.state('report', %s, %s)", term, str(done).encode())
    now = time.monotonic()
    if one("SELECT understudy.renew(%s)", session)[0] != "ok":
        break
    sent = now
    time.sleep(1)
one("SELECT understudy.release(%s)", session)
