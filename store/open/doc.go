// Package open turns a URL into a store. It is the only place that knows all of
// them:
//
//	sqlite:PATH                   one host; the file makes itself
//	postgres://USER:PASS@HOST/DB  also postgresql://; options as libpq's, and schema=NAME
//	redis://HOST:PORT/DB          rediss:// for TLS; also prefix=NAME
//	redis+sentinel://HOST:26379,HOST2:26379/MASTER/DB
//	                              rediss+sentinel:// for TLS
//	sabledb://HOST:PORT           cacert=FILE for TLS; also prefix=NAME
//
// A store that was opened answers, and has the schema that this program wants. A
// URL that names none is lease.ErrInvalid; what is wrong in the rest of it, a store
// that does not answer, and one of a newer program are the errors of [Open].
//
// With the build tag "embedded" it knows SQLite alone, and the clients of the
// others are not built: a first build then takes three quarters of the time.
package open
