"""python3 receiver.py: a webhook that lets each message take effect once, and none of an older term."""
import base64, hmac, http.server, sqlite3, time

SECRET = base64.b64decode(open("hook.key").read())
db = sqlite3.connect("receiver.db", isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS effect (id TEXT PRIMARY KEY, key TEXT, body BLOB)")
db.execute("CREATE TABLE IF NOT EXISTS newest (key TEXT PRIMARY KEY, term INTEGER)")

class Receiver(http.server.BaseHTTPRequestHandler):
    timeout = 10  # seconds: a connection that sends nothing holds up the others no longer

    def do_POST(self):
        h, body = self.headers, self.rfile.read(int(self.headers["Content-Length"]))
        id, stamp, given = (h.get("Webhook-" + name, "0") for name in ["Id", "Timestamp", "Signature"])
        right = hmac.digest(SECRET, f"{id}.{stamp}.".encode() + body, "sha256")
        if not hmac.compare_digest("v1," + base64.b64encode(right).decode(), given) or abs(time.time() - int(stamp)) > 300:
            return self.answer(401)
        key, term = h["Understudy-Key"], int(h["Understudy-Term"])
        with db:  # commits; rolls back what failed, a commit too, and the message comes again
            db.execute("BEGIN IMMEDIATE")
            row = db.execute("SELECT term FROM newest WHERE key = ?", [key]).fetchone()
            if row and term < row[0]:
                return self.answer(409, row[0])
            db.execute("INSERT OR REPLACE INTO newest VALUES (?, ?)", [key, term])
            new = db.execute("INSERT OR IGNORE INTO effect VALUES (?, ?, ?)", [h["Idempotency-Key"], key, body]).rowcount
        if new:
            print(key, h["Idempotency-Key"], body.decode(), flush=True)
        self.answer(204)

    def log_request(self, *_):
        pass

    def answer(self, status, newest=None):
        self.send_response(status)
        if newest is not None:
            self.send_header("Understudy-Term", str(newest))
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", 8080), Receiver).serve_forever()
