// Package source has sources of a cache: a program, and a URL.
//
// Both bound what they read (MaxValue), end when their context ends, and keep no
// state between calls. What a source said goes into its error: cleaned of control
// characters, cut to 500 bytes. Such errors are told to other peers and to clients.
//
// # A program: Exec
//
//	exit 0                   the value is what it wrote to its standard output
//	exit 66 (EX_NOINPUT)     cache.ErrNotFound
//	exit 75 (EX_TEMPFAIL),   a failure, with the end of its standard error; the
//	  any other end          peer calls again after its usual back-off
//
// The program is started for every fetch, without a shell. In its arguments {key}
// stands for the key, and its environment has UNDERSTUDY_KEY and UNDERSTUDY_TERM.
// A key is always a part of one argument. What it might still do there:
//
//   - Be taken for an option. A key that begins with "-" is refused where it
//     begins an argument, unless an argument -- comes before: write
//     'prog -- {key}'.
//   - Be taken for a script. A command that gives {key} to a shell to interpret
//     (sh -c '… {key} …') is refused. Write sh -c '… "$1" …' -- {key}, or
//     use "$UNDERSTUDY_KEY". Only the usual shells are recognised, as words of
//     the command: nothing keeps a program from interpreting its arguments.
//   - Be a path. prog /data/{key} reads /data/../etc/passwd for a key that says so:
//     the program has to refuse such keys.
//
// A key with a zero byte cannot be given to a program, and fails.
//
// The program has a process group of its own. When the fetch has to stop, the group is
// killed (SIGKILL) and the program reaped before the source returns. What has left
// the group (setsid) lives on. So does what a program leaves behind when it ends by
// itself; if that holds the standard output open, the value may be cut off, and is a
// failure. On systems that are not Unix only the program itself is killed.
//
// When this process dies, another peer may fetch at once. On Linux the program is
// killed with it, but not what the program had started: a script should run its
// last command by exec, or give it a parent-death signal (setpriv --pdeathsig KILL).
// On other systems the program itself goes on, and should bound its own time.
//
// # A URL: URL
//
//	200, 203                 the value is the body
//	404, 410                 cache.ErrNotFound
//	429, 503 and Retry-After cache.RetryAfter, of an hour at most
//	redirects                followed, 5 at most, never from https to http. To
//	                         another host go none of the configured headers
//	anything else            a failure, with the beginning of the body
//
// In the URL's path and query {key} stands for the key. All bytes but letters,
// digits and -._~ are percent-encoded, also "/": a key is one segment of a path.
// {key+} leaves "/" as it is, for keys that are paths. A key that makes a segment "." or ".."
// is refused in both forms, because proxies and servers would resolve
// it. What a server makes of %2F is its own matter.
//
// Each request has the header Understudy-Term. A copy's ETag is not kept, so that
// no request is conditional: every fetch transfers the value.
//
// The time to live is that of a shared cache: s-maxage, else max-age, else Expires
// less Date; less Age. At most MaxTTL. Where the answer says that it must not be kept
// or is stale already (no-store, no-cache, max-age=0, or something that cannot be
// read), it is a second, because who waits for it gets it in any case. Where it
// says nothing, it is what the peer is configured for. "private" and Vary are not
// looked at: who configures a source says that its answers are for all clients.
//
// # How it fails
//
// A config that cannot work is refused with an error that wraps lease.ErrInvalid.
// A source that was stopped returns an error that wraps the cause of its context.
package origin
