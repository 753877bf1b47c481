package postgres

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The rules (the hash of which names a rule set) are functions in the database that decide: who may take a lease, which message
// comes next, whether what was decided about a source still applies. There is one set of them for each version of the program
// that uses it: the names of a set begin with its hash, and the program calls its own. So programs of two versions run side by
// side. The entry points are what others call or read by a name that must not change: functions that applications call, the
// bodies of triggers, and views. There is one of each, which uses the set that was installed last.
//
//go:embed functions/*.sql entry/*.sql
var ruleFiles embed.FS

// retiredNames are the functions and types of the schema's versions up to 11.
//
//go:embed retired.txt
var retiredNames string

// setGrace is how long a set stays after it was last used. It is the time in which an upgrade
// can be rolled back to a program whose processes have all ended.
const setGrace = 7 * 24 * time.Hour

// ruleSet is the set of functions that this program calls.
type ruleSet struct {
	hash             string // 12 hexadecimal digits over all of its files
	functions, entry string // what creates them
}

func readRules() (r ruleSet, err error) {
	sum := sha256.New()
	read := func(pattern string) (string, error) {
		names, err := fs.Glob(ruleFiles, pattern)
		if err != nil {
			return "", err
		}
		var all strings.Builder
		for _, name := range names {
			text, err := ruleFiles.ReadFile(name)
			if err != nil {
				return "", err
			}
			all.Write(text)
			sum.Write(text)
		}
		return all.String(), nil
	}
	if r.functions, err = read("functions/*.sql"); err != nil {
		return ruleSet{}, err
	}
	if r.entry, err = read("entry/*.sql"); err != nil {
		return ruleSet{}, err
	}
	r.hash = hex.EncodeToString(sum.Sum(nil))[:12]
	return r, nil
}

// prefix starts the names of a set's functions and types.
func (r ruleSet) prefix() string { return "r" + r.hash + "_" }

// renderer puts names into SQL: {{schema}} is the schema, {{channel}} its name as a string,
// {{rules}}.f the function f of the set, and {{hash}} the set's hash as a string. The schema's
// name has been checked to be a plain word. Names are written out, and not found by a
// search_path, because poolers share connections.
func renderer(schema string, r ruleSet) *strings.Replacer {
	return strings.NewReplacer(
		"{{schema}}", `"`+schema+`"`,
		"{{channel}}", "'"+schema+"'",
		"{{rules}}.", `"`+schema+`".`+r.prefix(),
		"{{hash}}", "'"+r.hash+"'",
	)
}

// installRules creates the set if the database does not have it, and makes the entry points use
// it if it is new, or if nothing has used their set for so long that its program has gone for good.
// A set that is only started again leaves them as they are: while two versions run side by side,
// each start would otherwise exchange them, and each of both serves the other's callers.
func (s *Store) installRules(ctx context.Context, tx pgx.Tx) error {
	found, err := s.readState(ctx, tx)
	if err != nil {
		return err
	}
	if !found.installed {
		// Functions call each other, whatever the order in which they are created.
		sql := "SET LOCAL check_function_bodies = off;" + s.sql(s.rules.functions) + s.sql("INSERT INTO {{schema}}.rule_set (hash) VALUES ({{hash}})")
		if _, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("creating the functions: %w", err)
		}
	}
	if found.installed && found.entryUsed {
		return nil
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
		if _, err := tx.Conn().PgConn().Exec(ctx, s.sql(s.rules.entry)).ReadAll(); err != nil {
			return fmt.Errorf("creating the entry points: %w", err)
		}
		_, err := tx.Exec(ctx, s.sql("UPDATE {{schema}}.rule_set SET entry = hash = {{hash}} WHERE entry <> (hash = {{hash}})"))
		return err
	})
	if code := pgCode(err); code == codeOtherView || code == codeOtherFunction {
		// A later version has added to them, and an operator has gone back. Its entry points serve this program's callers as before.
		// They count as used, or every start would try again, and fail for a role that may not create.
		s.log.Warn("entry points of a later version kept", "err", err)
		_, err = tx.Exec(ctx, s.sql("UPDATE {{schema}}.rule_set SET used = clock_timestamp() WHERE entry"))
	}
	return err
}

// recordUseAndDropUnused records that the set is in use, and drops sets that nothing uses. Both can wait for
// the next start, and for a role that may do so.
func (s *Store) recordUseAndDropUnused(ctx context.Context, conn *pgx.Conn, found schemaState) {
	if found.idle {
		if _, err := conn.Exec(ctx, s.sql("UPDATE {{schema}}.rule_set SET used = clock_timestamp() WHERE hash = {{hash}}")); err != nil {
			s.log.Debug("use of the rule set not recorded", "err", err)
		}
	}
	if found.unused {
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return s.dropUnused(ctx, tx) })
		if err != nil {
			s.log.Warn("old rule sets not dropped", "err", err)
		}
	}
}

// dropUnused drops the sets that were not used for setGrace. Sessions record which set their
// program calls, and keep it in use for as long as they live. The set of the entry points stays.
func (s *Store) dropUnused(ctx context.Context, tx pgx.Tx) error {
	if err := s.lockSchema(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.sql(`UPDATE {{schema}}.rule_set r SET used = n.last
		FROM (SELECT rules, max(deadline) AS last FROM {{schema}}.session GROUP BY rules) n WHERE n.rules = r.hash AND n.last > r.used`))
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, s.sql(`DELETE FROM {{schema}}.rule_set
		WHERE NOT entry AND hash <> {{hash}} AND used < clock_timestamp() - make_interval(secs => $1) RETURNING hash`), setGrace.Seconds())
	if err != nil {
		return err
	}
	dropped, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, hash := range dropped {
		if err := s.dropSet(ctx, tx, hash); err != nil {
			return fmt.Errorf("set %q: %w", hash, err)
		}
		s.log.Info("unused rule set dropped", "schema", s.schema, "hash", hash)
	}
	return nil
}

// dropSet drops the functions and types of a set. What an application has made to depend on
// them is an error: they are no interface.
func (s *Store) dropSet(ctx context.Context, tx pgx.Tx, hash string) error {
	var names []string // nil: all with the prefix
	if hash == "" {
		names = strings.Fields(retiredNames)
		// From here on a program of version 11 finds nothing to call.
		if _, err := tx.Exec(ctx, s.sql("INSERT INTO {{schema}}.migration (version) VALUES (12) ON CONFLICT DO NOTHING")); err != nil {
			return err
		}
	}
	// Entry points have the rights of the owner, and no function of a set has: two have the names of retired ones.
	for _, list := range []string{
		`SELECT 'FUNCTION ' || oid::regprocedure FROM pg_proc WHERE pronamespace = $1::regnamespace AND NOT prosecdef AND (proname = ANY ($2) OR starts_with(proname, $3))`,
		`SELECT 'TYPE ' || oid::regtype FROM pg_type WHERE typnamespace = $1::regnamespace AND typcategory = 'C'
			AND typrelid IN (SELECT oid FROM pg_class WHERE relkind = 'c') AND (typname = ANY ($2) OR starts_with(typname, $3))`,
	} {
		prefix := "r" + hash + "_"
		if hash == "" {
			prefix = "no such prefix"
		}
		rows, err := tx.Query(ctx, list, `"`+s.schema+`"`, names, prefix)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, one := range found {
			if _, err := tx.Exec(ctx, "DROP "+one); err != nil {
				return err
			}
		}
	}
	return nil
}
