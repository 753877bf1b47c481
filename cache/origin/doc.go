// Package origin has two origins for a cache: a program and a URL.
//
// Both bound what they read (MaxValue), end when their context ends, and keep no
// state between calls. Their errors contain the origin's own words, without control
// characters and cut to 500 bytes; other peers and clients see them.
//
// # A program: Exec
//
//	exit 0                   the value is what it wrote to its standard output
//	exit 66 (EX_NOINPUT)     cache.ErrNotFound
//	exit 75 (EX_TEMPFAIL),   a failure, with the end of its standard error; the
//	  anything else          peer calls again after its usual back-off
//
// The program is started for every fetch, without a shell. In its arguments {key}
// stands for the key, and its environment has UNDERSTUDY_KEY and UNDERSTUDY_TERM.
// A key is always part of one argument. Three things to know:
//
//   - A key could look like an option. A key that starts with "-" is refused where it
//     starts an argument, unless an argument -- comes before it: write
//     'prog -- {key}'.
//   - A key could look like a script. A command that passes {key} to a shell
//     (sh -c '… {key} …') is refused. Write sh -c '… "$1" …' -- {key}, or
//     use "$UNDERSTUDY_KEY". Only the usual shells are recognised, as words of
//     the command; any program may still interpret its arguments.
//   - A key could be a path. prog /data/{key} reads /data/../etc/passwd for the key
//     ../etc/passwd: the program must refuse such keys.
//
// A key with a zero byte cannot be given to a program, and fails.
//
// The program has a process group of its own. When the fetch has to stop, the group is
// killed (SIGKILL) and the program reaped before the origin returns. A process that has left
// the group (setsid) survives, and so does one that the program leaves behind when it ends by
// itself; if such a process keeps the standard output open, the value could be incomplete, and the
// fetch fails. On systems other than Unix only the program itself is killed.
//
// When this process dies, another peer may fetch at once. On Linux the program is
// killed with it, but not its children: a script should run its
// last command by exec, or set a parent-death signal (setpriv --pdeathsig KILL).
// On other systems the program continues, and should bound its own time.
//
// # A URL: URL
//
//	200, 203                 the value is the body
//	404, 410                 cache.ErrNotFound
//	429, 503 and Retry-After cache.RetryAfter, at most an hour
//	redirects                followed, at most 5, never from https to http, and
//	                         without the configured headers to another host
//	anything else            a failure, with the start of the body
//
// In the URL's path and query {key} stands for the key. All bytes but letters,
// digits and -._~ are percent-encoded, also "/": a key is one segment of a path.
// {key+} leaves "/" as it is, for keys that are paths. A key that makes a segment "." or ".."
// is refused in both forms, because proxies and servers would resolve
// it. Servers differ in how they read %2F.
//
// Each request has the header Understudy-Term. ETags are not kept: every fetch transfers
// the value.
//
// The time to live is that of a shared cache: s-maxage, else max-age, else Expires
// less Date; less Age; at most MaxTTL. Without such headers it is the peer's configured time.
//
// No copy is kept of an answer with no-store, no-cache, private or Vary: *, nor of one that is stale
// already (a value that cannot be read counts as that) unless stale-while-revalidate or stale-if-error
// allows it: it answers the waiting requests ([cache.Value].NoStore). Any other Vary has no effect, because
// every request has the same headers.
//
// # How it fails
//
// A configuration that cannot work is refused with an error that wraps lease.ErrInvalid.
// An origin that was stopped returns an error that wraps the cause of its context.
package origin
