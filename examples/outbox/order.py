"""DATABASE_URL=postgres://… python3 order.py ID CUSTOMER PIECES: an order and its message, in one transaction."""
import os, sys
import psycopg  # pip install "psycopg[binary]", or Debian's python3-psycopg

id, customer, pieces = sys.argv[1:]
with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=10) as db:  # commits at its end, or rolls back
    db.execute("SELECT understudy.enqueue('orders', %s, %s, %s)", (customer, f"{pieces} pieces".encode(), id))
    db.execute("INSERT INTO orders VALUES (%s, %s, %s)", (id, customer, int(pieces)))
