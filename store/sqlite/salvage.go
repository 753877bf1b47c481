package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

const (
	salvageTables = `
SELECT t.name, t.wr, (SELECT count(*) = 1 AND max(c.type) = 'INTEGER' FROM pragma_table_info(t.name) c WHERE c.pk > 0)
FROM pragma_table_list t WHERE t.schema = 'main' AND t.type = 'table' AND t.name LIKE 'understudy%' AND t.name NOT IN ('understudy_schema', 'understudy_step') ORDER BY t.name`

	salvageOthers = `
SELECT name FROM pragma_table_list
WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT LIKE 'understudy%' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`

	salvageColumns   = "SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid"
	salvageTriggers  = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name LIKE 'understudy%'"
	salvageSequences = "SELECT name, seq FROM sqlite_sequence"
	raiseSequence    = "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1"

	// A table of which no row was copied has no sequence yet.
	addSequence = `
INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2
WHERE EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1) AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)`
)

// Salvage copies what can be read of a damaged file into a new one: tables as a whole, or their rows before, between and after
// what is damaged, and makes them agree: see [repairs]. Tables of another program are named, and not copied. The damaged file,
// of which a copy is read, stays as it is. It returns [lease.ErrDamaged] if nothing can be read, [store.ErrSchema] if another
// version of the schema is in the file, and [lease.ErrInvalid] if the new one exists.
func Salvage(ctx context.Context, from, to string) (out store.Salvaged, err error) {
	if missing(from) {
		return out, fmt.Errorf("sqlite: %w: there is no file %s", lease.ErrInvalid, from)
	}
	if !missing(to) {
		return out, fmt.Errorf("sqlite: %w: %s exists; name a file that does not", lease.ErrInvalid, to)
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".salvage-")
	if err != nil {
		return out, fmt.Errorf("sqlite: a copy of the damaged file: %w: %w", lease.ErrUnavailable, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	copied := filepath.Join(dir, "damaged.db")
	for _, end := range []string{"", "-wal"} {
		if end != "" && missing(from+end) {
			continue
		}
		zeros, err := copyReadable(ctx, from+end, copied+end)
		if err != nil {
			return out, fmt.Errorf("sqlite: a copy of the damaged file: %w: %w", lease.ErrUnavailable, err)
		}
		out.Unreadable += zeros
	}
	damaged, err := Open(ctx, Config{Path: copied, NoMigrate: true, IntoExisting: true})
	if err != nil {
		return out, err
	}
	defer func() { _ = damaged.Close() }()
	if err := damaged.checkSalvageable(ctx); err != nil {
		return out, err
	}
	saved, err := Open(ctx, Config{Path: to})
	if err != nil {
		return out, err
	}
	err = errors.Join(salvageInto(ctx, damaged, saved, &out), saved.Close())
	return out, err
}

func (s *Store) checkSalvageable(ctx context.Context) error {
	all, err := steps()
	if err != nil {
		return err
	}
	return s.read(ctx, "reading the damaged file", func(c call) error {
		version, _, err := schemaVersion(c)
		switch {
		case isDamage(err):
			// The list of tables is in another place than the version: try.
			var tables int
			return c.one(schemaTables, nil, &tables)
		case err != nil:
			return err
		case version == 0:
			return fmt.Errorf("sqlite: %w: there are no tables of understudy in the file", lease.ErrInvalid)
		case version != len(all):
			return fmt.Errorf("sqlite: %w: the file has version %d, and this program %d: use the version of understudy that wrote it last", store.ErrSchema, version, len(all))
		}
		return nil
	})
}

// salvageInto copies table by table, in one transaction.
func salvageInto(ctx context.Context, damaged, saved *Store, out *store.Salvaged) error {
	in, err := damaged.wide.Conn(ctx)
	if err != nil {
		return failed("opening the damaged file", err)
	}
	defer in.Close()
	tx, err := saved.wide.BeginTx(ctx, nil)
	if err != nil {
		return failed("opening the new file", err)
	}
	defer func() { _ = tx.Rollback() }()
	putBack, err := dropTriggers(ctx, tx)
	if err != nil {
		return failed("preparing the new file", err)
	}
	tables, err := tablesOf(ctx, tx)
	if err != nil {
		return failed("reading the tables of the new file", err)
	}
	for _, t := range tables {
		t.in, t.tx = in, tx
		rows, err := t.copyRows(ctx)
		if err != nil {
			return failed("copying "+t.name, err)
		}
		if t.refused > 0 {
			rows.Damage = strings.TrimPrefix(fmt.Sprintf("%s; %d rows do not fit the table (%v)", rows.Damage, t.refused, t.why), "; ")
		}
		out.Tables = append(out.Tables, rows)
	}
	copySequences(ctx, in, tx)
	out.NotCopied = othersOf(ctx, in)
	if err := repairCopy(ctx, tx, out); err != nil {
		return failed("repairing the new file", err)
	}
	for _, text := range putBack {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return failed("preparing the new file", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return failed("writing the new file", err)
	}
	return nil
}

// dropTriggers drops the triggers, which have run for the rows that are copied, and returns what makes them again.
func dropTriggers(ctx context.Context, tx *sql.Tx) (putBack []string, err error) {
	rows, err := tx.QueryContext(ctx, salvageTriggers)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		names, putBack = append(names, name), append(putBack, text)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := tx.ExecContext(ctx, "DROP TRIGGER "+quoted(name)); err != nil {
			return nil, err
		}
	}
	return putBack, nil
}

// copySequences sees to it that no number is given twice, where that can be read.
func copySequences(ctx context.Context, in *sql.Conn, tx *sql.Tx) {
	rows, err := in.QueryContext(ctx, salvageSequences)
	if err != nil {
		return
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var seq int64
		if rows.Scan(&name, &seq) == nil {
			_, _ = tx.ExecContext(ctx, raiseSequence, name, seq)
			_, _ = tx.ExecContext(ctx, addSequence, name, seq)
		}
	}
}

// othersOf names the tables of another program, which the new file has no place for. SQLite has their names in memory, with the
// schema, without which it would not have read a table.
func othersOf(ctx context.Context, in *sql.Conn) (names []string) {
	rows, err := in.QueryContext(ctx, salvageOthers)
	if err != nil {
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if rows.Scan(&name) == nil {
			names = append(names, name)
		}
	}
	return names
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// salvagedTable is one table, of which rows are copied.
type salvagedTable struct {
	name    string
	rowid   bool   // it has one, and it is no column
	order   string // the columns of its order
	columns string
	places  string // as many question marks
	byRowid bool   // rows can be looked for behind a damaged place
	refused int64  // how many rows the new table did not take
	why     error  // it did not take the last of them

	in *sql.Conn
	tx *sql.Tx
}

func tablesOf(ctx context.Context, tx *sql.Tx) (out []*salvagedTable, err error) {
	rows, err := tx.QueryContext(ctx, salvageTables)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		t := &salvagedTable{}
		var without, alias bool
		if err = rows.Scan(&t.name, &without, &alias); err != nil {
			break
		}
		t.byRowid, t.rowid = !without, !without && !alias
		out = append(out, t)
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	for _, t := range out {
		if err := t.readColumns(ctx, tx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (t *salvagedTable) readColumns(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, salvageColumns, t.name)
	if err != nil {
		return err
	}
	defer rows.Close()
	var names []string
	keys := map[int]string{}
	if t.rowid {
		names = append(names, "rowid")
	}
	for rows.Next() {
		var name string
		var key int
		if err := rows.Scan(&name, &key); err != nil {
			return err
		}
		names = append(names, quoted(name))
		keys[key] = quoted(name)
	}
	t.columns = strings.Join(names, ", ")
	t.places = strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")
	var order []string
	for key := 1; keys[key] != ""; key++ {
		order = append(order, keys[key])
	}
	if t.order = "rowid"; !t.byRowid {
		t.order = strings.Join(order, ", ")
	}
	return rows.Err()
}

// copyRows copies the rows from the first up to a damaged place, those between damaged places where the table has numbers by
// which it can be entered, and those from the last one back. An error is one of the new file.
func (t *salvagedTable) copyRows(ctx context.Context) (out store.SalvagedTable, err error) {
	out.Name = t.name
	from := "SELECT " + t.columns + " FROM " + quoted(t.name)
	if !t.byRowid {
		n, _, bad, err := t.copyFrom(ctx, from+" ORDER BY "+t.order)
		if out.Rows = n; err != nil || bad == nil {
			return out, err
		}
		out.Damage = bad.Error()
		back, _, _, err := t.copyFrom(ctx, from+" ORDER BY "+strings.ReplaceAll(t.order, ", ", " DESC, ")+" DESC")
		out.Rows += back
		return out, err
	}
	for at := int64(math.MinInt64); ; {
		n, last, bad, err := t.copyFrom(ctx, "SELECT "+t.columns+", rowid AS at FROM "+quoted(t.name)+" WHERE rowid > ? ORDER BY rowid", at)
		if out.Rows += n; err != nil || bad == nil {
			return out, err
		}
		out.Damage = bad.Error()
		next, more := t.behind(ctx, max(at, last))
		if !more {
			return out, ctx.Err()
		}
		at = next
	}
}

// behind finds the least number, more or less, behind which rows can be read again; false if there is none.
func (t *salvagedTable) behind(ctx context.Context, at int64) (int64, bool) {
	readable := func(after int64) bool {
		rows, err := t.in.QueryContext(ctx, "SELECT "+t.columns+" FROM "+quoted(t.name)+" WHERE rowid > ? ORDER BY rowid LIMIT 1", after)
		if err != nil {
			return false
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err() == nil
	}
	bad, good := max(at, 0), int64(0)
	for step := int64(1); ; step *= 2 {
		if ctx.Err() != nil || step > math.MaxInt64/4 || bad > math.MaxInt64-step {
			return 0, false
		}
		if good = bad + step; readable(good) {
			break
		}
		bad = good
	}
	for bad+1 < good {
		if middle := bad + (good-bad)/2; readable(middle) {
			good = middle
		} else {
			bad = middle
		}
	}
	return good, true
}

// copyFrom copies the rows of a query until it ends, or until one cannot be read: bad says why. It returns how many were new,
// and the number of the last one.
func (t *salvagedTable) copyFrom(ctx context.Context, query string, args ...any) (n, last int64, bad, err error) {
	last = math.MinInt64
	rows, bad := t.in.QueryContext(ctx, query, args...)
	if bad != nil {
		return 0, last, bad, ctx.Err()
	}
	defer rows.Close()
	wide := strings.Count(t.places, "?")
	values, dest := make([]any, wide), make([]any, wide, wide+1)
	for i := range values {
		dest[i] = &values[i]
	}
	if t.byRowid {
		dest = append(dest, &last)
	}
	for rows.Next() {
		if bad := rows.Scan(dest...); bad != nil {
			return n, last, bad, nil
		}
		for i, v := range values {
			if b, is := v.([]byte); is && b == nil {
				values[i] = []byte{} // the driver reads a blob of no bytes as nil, and writes nil as NULL
			}
		}
		done, err := t.tx.ExecContext(ctx, "INSERT OR REPLACE INTO "+quoted(t.name)+" ("+t.columns+") VALUES ("+t.places+")", values...)
		if isRowRefused(err) {
			t.refused, t.why = t.refused+1, err // what is there is not a row of this table
			continue
		}
		if err != nil {
			return n, last, nil, err
		}
		added, _ := done.RowsAffected()
		n += added
	}
	return n, last, rows.Err(), ctx.Err()
}

// isRowRefused reports whether a row breaks a rule of its table.
func isRowRefused(err error) bool {
	return code(err) == sqlite3.SQLITE_CONSTRAINT || code(err) == sqlite3.SQLITE_MISMATCH
}
