#!/bin/sh
# Dumps the database and reports how that ended, to any instance of the monitor. The report never fails the backup.
# A dump that fails leaves the one of before.
pg_dump "$DATABASE_URL" >backup.new.out && mv backup.new.out backup.sql.out
code=$?
for monitor in ${MONITORS:-http://127.0.0.1:7601 http://127.0.0.1:7602}; do
	curl -fsS -m 10 -o /dev/null "$monitor/v1/ping/backup/db-1/$code" && break
done
exit $code
