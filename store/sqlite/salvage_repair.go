package sqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/understudy-ha/understudy/store"
)

const (
	noPayloadSQL = " NOT EXISTS (SELECT 1 FROM understudy_payload p WHERE p.n = b.body)"

	// waitsSQL is true of a message b that is not over.
	waitsSQL = "(b.ended_us IS NULL OR b.blocks <> 0)"

	// The heads of keys that are added may have been under way, which only the lost row told: targets are asked first.
	addClaims = `
INSERT INTO understudy_claim (space, key, since_us, begun_us, interrupted, done)
SELECT 'queue/' || b.queue, b.key, understudy_wall_us(), understudy_wall_us(), max` + waitsSQL + `, coalesce(min(iif(` + waitsSQL + `, b.seq, NULL)) - 1, max(b.seq))
FROM understudy_batch b
WHERE NOT EXISTS (SELECT 1 FROM understudy_claim c WHERE c.space = 'queue/' || b.queue AND c.key = b.key)
GROUP BY b.queue, b.key`

	// "over" counts pruned messages, too: it is only raised. What is told of a step is of the message after done, which may be lost.
	// A key that is made ready although an operator has to act is released by whoever claims it first.
	recountClaims = `
UPDATE understudy_claim AS c
SET last = max(c.last, n.top), waiting = n.waits, over = max(c.over, n.ended), blocked = n.stuck, done = coalesce(n.head - 1, max(c.done, n.top)),
  step = iif(n.head = c.done + 1, c.step, 0), interrupted = iif(n.head = c.done + 1, c.interrupted, 0),
  ready_us = iif(n.waits = 0, NULL, coalesce(c.ready_us, understudy_wall_us()))
FROM (
  SELECT k.space, k.key, coalesce(max(b.seq), 0) AS top, count(b.seq) FILTER (WHERE ` + waitsSQL + `) AS waits,
    count(b.seq) FILTER (WHERE NOT ` + waitsSQL + `) AS ended, min(b.seq) FILTER (WHERE ` + waitsSQL + `) AS head, coalesce(max(b.blocks), 0) AS stuck
  FROM understudy_claim k LEFT JOIN understudy_batch b ON b.queue = substr(k.space, 7) AND b.key = k.key
  WHERE substr(k.space, 1, 6) = 'queue/' GROUP BY k.space, k.key) n
WHERE c.space = n.space AND c.key = n.key
  AND (c.waiting <> n.waits OR c.blocked <> n.stuck OR c.last < n.top OR c.over < n.ended OR coalesce(c.done >= n.head, 0))`

	addQueues = `
INSERT INTO understudy_queue (name, made_us)
SELECT name, understudy_wall_us() FROM (
  SELECT substr(space, 7) AS name FROM understudy_claim WHERE substr(space, 1, 6) = 'queue/' UNION SELECT queue FROM understudy_scheduled)
WHERE name NOT IN (SELECT name FROM understudy_queue)`

	noBeatSQL = " s.id NOT IN (SELECT id FROM understudy_monitor_beat)"

	// Without this, sources that have been up for long would be late at once.
	expectAgain = `
UPDATE understudy_monitor_source AS s SET base_us = max(base_us, (SELECT moment_us FROM understudy_monitor)) WHERE` + noBeatSQL

	addBeats = `
INSERT INTO understudy_monitor_beat (id, every_us, watched)
SELECT s.id, e.every_us, s.alarm <> '' OR s.state = 'retired'
FROM understudy_monitor_source s JOIN understudy_monitor_event e ON e.id = s.event WHERE` + noBeatSQL

	recountSources = `
INSERT OR REPLACE INTO understudy_monitor_count (event, up, down, paused, retired, unseen, standing)
SELECT e.id, count(s.id) FILTER (WHERE s.state = 'up'), count(s.id) FILTER (WHERE s.state = 'down'), count(s.id) FILTER (WHERE s.state = 'paused'),
  count(s.id) FILTER (WHERE s.state = 'retired'), count(s.id) FILTER (WHERE s.seen = 0 AND s.state IN ('up', 'down')), count(s.id) FILTER (WHERE s.alarm <> '')
FROM understudy_monitor_event e LEFT JOIN understudy_monitor_source s ON s.event = e.id GROUP BY e.id
EXCEPT SELECT event, up, down, paused, retired, unseen, standing FROM understudy_monitor_count`
)

// repair is a statement that makes rows agree with others, some of which were lost. It changes nothing in a sound store.
type repair struct {
	text string
	what string // is told with the number of rows; "" is not worth it
	of   string // the table that must be damaged, if rows that others do without are no sign of it
}

// repairs are all there are, in their order, for a file without triggers.
func repairs() []repair {
	return []repair{
		{text: "DELETE FROM understudy_batch AS b WHERE " + waitsSQL + " AND" + noPayloadSQL, what: "messages that waited are lost: their payloads could not be read"},
		{text: "DELETE FROM understudy_batch AS b WHERE" + noPayloadSQL, what: "messages that had ended are forgotten: their payloads could not be read"},
		{text: "DELETE FROM understudy_payload WHERE n NOT IN (SELECT body FROM understudy_batch)", what: "payloads dropped: the rest of their messages could not be read"},
		{text: addClaims, what: "keys of queues added: targets are asked whether they have the first message of each"},
		{text: recountClaims, what: "keys of queues corrected: their messages were counted again"},
		// Rows without a queue are otherwise what an interrupted removal left; here the next to make the queue would delete them.
		{text: addQueues, what: "queues added, of which messages or keys could be read", of: "understudy_queue"},
		{text: "DELETE FROM understudy_monitor_source WHERE event NOT IN (SELECT id FROM understudy_monitor_event)", what: "sources dropped: their checks could not be read"},
		{text: "DELETE FROM understudy_monitor_beat WHERE id NOT IN (SELECT id FROM understudy_monitor_source)", what: "last heartbeats dropped: their sources could not be read"},
		{text: "DELETE FROM understudy_monitor_report WHERE id NOT IN (SELECT id FROM understudy_monitor_source)"},
		{text: expectAgain},
		{text: addBeats, what: "sources have a whole limit again: their last heartbeats could not be read"},
		{text: "DELETE FROM understudy_monitor_count WHERE event NOT IN (SELECT id FROM understudy_monitor_event)"},
		{text: recountSources, what: "checks corrected: their sources were counted again"},
	}
}

// repairCopy makes what was copied agree, so that it can be delivered and judged from.
func repairCopy(ctx context.Context, tx *sql.Tx, out *store.Salvaged) error {
	for _, r := range repairs() {
		if r.of != "" && !slices.ContainsFunc(out.Tables, func(t store.SalvagedTable) bool { return t.Name == r.of && t.Damage != "" }) {
			continue
		}
		done, err := tx.ExecContext(ctx, r.text)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err == nil && n > 0 && r.what != "" {
			out.Repairs = append(out.Repairs, store.SalvageRepair{What: r.what, Rows: n})
		}
	}
	return nil
}
