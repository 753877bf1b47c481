package postgres

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// SQLSTATEs with a meaning of their own.
const (
	codeProtocol       = "08P01"
	codeReadOnly       = "25006"
	codeSerialization  = "40001"
	codeDeadlock       = "40P01"
	codeNoRights       = "42501"
	codeNoFunction     = "42883"
	codeNoTable        = "42P01"
	codeNoSchema       = "3F000"
	codeOtherView      = "42P16" // a view has columns that its replacement does not have
	codeOtherFunction  = "42P13" // a function has another result or other names of arguments than its replacement
	codeLockTimeout    = "55P03"
	codeLimit          = "54000" // also of the queue of notifications
	codeNoSetting      = "42704"
	codeBadSetting     = "22023"
	codeCheckViolation = "23514"
	codeIdle           = "25P03"
	codeIsolation      = "US003" // of a function that needs READ COMMITTED; US001 is TermNotCurrent, US002 NoQueue

	notifySource = "async.c" // of PostgreSQL; its messages are translated

	classConnection = "08" // also PgBouncer's own errors
	classBadValue   = "22"
	classShutdown   = "57P"
)

func pgCode(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// isTransient reports whether the same statement on the same or another connection may
// succeed, and this one left nothing behind.
func isTransient(err error) bool {
	if errors.As(err, new(notSent)) {
		return false // connecting was tried already
	}
	code := pgCode(err)
	return code == codeSerialization || code == codeDeadlock || pgconn.SafeToRetry(err)
}

// isRefusedParameter reports whether a pooler refused a startup parameter.
func isRefusedParameter(err error) bool {
	return pgCode(err) == codeProtocol && strings.Contains(err.Error(), "startup parameter")
}

// isUnknownTCPSetting reports whether a server does not know one of tcpSettings. Some that speak PostgreSQL's protocol do not.
func isUnknownTCPSetting(err error) bool {
	return pgCode(err) == codeNoSetting && strings.Contains(err.Error(), `"tcp_`)
}

// asRefusedOption is the error of a connection of which the server, or a pooler, refused an option in the URL: it is invalid,
// and waiting does not help. Any other error comes back as it is.
func asRefusedOption(err error, c *pgx.ConnConfig) error {
	var pg *pgconn.PgError
	if !errors.As(err, new(notSent)) || !errors.As(err, &pg) || pg.Code != codeNoSetting && pg.Code != codeBadSetting && !isRefusedParameter(err) {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.RuntimeParams)) {
		// PostgreSQL quotes the name, PgBouncer ends with it.
		if strings.Contains(pg.Message, strconv.Quote(name)) || strings.HasSuffix(pg.Message, ": "+name) {
			return fmt.Errorf("%w: the option %q of the URL is refused: %s; the options are schema=NAME, those of libpq (sslmode, target_session_attrs, …) and, without a pooler, the server's settings",
				lease.ErrInvalid, name, pg.Message)
		}
	}
	return err
}

func isReplica(err error) bool { return pgCode(err) == codeReadOnly }

// asRefusal gives a server's refusal of a message its meaning; any other error comes back as it is.
func asRefusal(err error) error {
	var pg *pgconn.PgError
	var meaning error
	switch {
	case !errors.As(err, &pg):
		return err
	case pg.Code == NoQueue:
		meaning = dispatch.ErrNoQueue
	case pg.Code == codeCheckViolation, strings.HasPrefix(pg.Code, classBadValue):
		meaning = lease.ErrInvalid
	default:
		return err
	}
	if words, own := strings.CutPrefix(pg.Message, "understudy: "); own {
		return refusedError{words, meaning, pg}
	}
	return fmt.Errorf("%w: %w", meaning, err)
}

// refusedError is a refusal by a function of the schema, whose words say what it means to this program.
type refusedError struct {
	words   string
	meaning error
	pg      *pgconn.PgError
}

func (e refusedError) Error() string   { return e.words + " (SQLSTATE " + e.pg.Code + ")" }
func (e refusedError) Unwrap() []error { return []error{e.meaning, e.pg} }

// connectError says why there is no connection, each cause once. The driver repeats a cause for each address that it tries,
// and with sslmode=prefer it begins with the server's refusal of TLS, which is not the cause.
type connectError struct{ error }

func (e connectError) Unwrap() error { return e.error }

func (e connectError) Error() string {
	first, causes, _ := strings.Cut(e.error.Error(), "\n")
	var listed []string
	for line := range strings.Lines(causes) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(listed, line) {
			listed = append(listed, line)
		}
	}
	if others := slices.DeleteFunc(slices.Clone(listed), func(line string) bool { return strings.HasSuffix(line, "server refused TLS connection") }); len(others) > 0 {
		listed = others
	}
	return strings.TrimSpace(first + " " + strings.Join(listed, "; "))
}

// during says, of an error if there is one, what was being done.
func during(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), err)
}

// classify gives an error of the driver or the server its meaning to the kernel.
func classify(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrSchema), errors.Is(err, lease.ErrInvalid):
		return err
	case errors.As(err, new(notSent)), pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	case !errors.As(err, &pg):
		return fmt.Errorf("%w: %w", lease.ErrUnknown, err)
	case strings.HasPrefix(pg.Code, classConnection), strings.HasPrefix(pg.Code, classShutdown):
		// A server that shuts down while a commit waits for its standbys has
		// committed; a pooler does not know what became of it.
		return fmt.Errorf("%w: %w", lease.ErrUnknown, err)
	case asRefusal(err) != err:
		return asRefusal(err)
	}
	// Any other error of a statement means that it was rolled back.
	hint := ""
	switch pg.Code {
	case codeLimit:
		if pg.File != notifySource {
			return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
		}
		hint = "the server's queue of notifications is full: " + freeNotifications
	case codeReadOnly:
		hint = "the server accepts no writes: it is a replica or recovering; the URL may name all hosts of the cluster"
	case codeNoFunction, codeNoTable, codeNoSchema:
		return fmt.Errorf("%w: %w is missing or older than this program: run `understudy store migrate`: %w", lease.ErrUnavailable, store.ErrSchema, err)
	case codeNoRights:
		hint = "the role of the URL lacks a right on the schema"
	case codeIdle:
		hint = "the transaction was left open for too long and is undone: this process stood still, or was cut off from the server"
	case codeLockTimeout:
		hint = "another transaction kept a row or table locked: end it (pg_stat_activity)"
	default:
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %s: %w", lease.ErrUnavailable, hint, err)
}
