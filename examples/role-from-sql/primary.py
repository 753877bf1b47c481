import os, sys, time
import psycopg  # pip install "psycopg[binary]"

db = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
attempt = None
while True:
    sent = time.monotonic()
    term, state, session, wait_ms, attempt = db.execute(
        "SELECT term, state, session, wait_ms, attempt FROM understudy.acquire('report', %s, %s)", (sys.argv[1], attempt)).fetchone()
    if term:
        break
    time.sleep(wait_ms / 1000)

done = int(state or 0)
print("primary", term, "from", done, flush=True)
while time.monotonic() < sent + 4:
    done += 1  # one piece of work
    db.execute("SELECT understudy.state('report', %s, %s)", (term, str(done).encode()))
    now = time.monotonic()
    if db.execute("SELECT understudy.renew(%s)", (session,)).fetchone()[0] != "ok":
        break
    sent = now
    time.sleep(1)
db.execute("SELECT understudy.release(%s)", (session,))
