// Command understudy keeps one primary per role, delivers messages in order, and more, on the database that its users
// already run. See `understudy --help`.
//
// The package is the command line alone. The method that makes a command is named after it: "monitor config apply" is
// monitorConfigApplyCommand. Verbs that differ in little come from one method (queueActCommand, jobActCommand, storeVerb, and
// removeCommand for "monitor sink" and "monitor path"), and the smallest verbs from that of their noun ("store path" from storeCommand).
//
// # Files of one noun
//
// Each noun has a file, and more where it has many verbs: queue.go, queueact.go, queueadd.go, queuelist.go, queuerun.go; of
// "config": configcheck.go, configschema.go, configshow.go.
//
// # Files that all share
//
//	main.go         what the program does when it has started itself again (a watcher, the release of a lease, the launch of a
//	                node); otherwise run (root.go)
//	root.go         the root command and the global flags; app.go has their values, the log and the timeouts
//	endpoint.go     which server or store a command uses (resolveEndpoint): --server or --store; else what the environment names, the
//	                server ($UNDERSTUDY_SERVER) before the store ($UNDERSTUDY_STORE or _STORE_FILE) if the command calls the API, only the
//	                store if it opens that itself; else a file on this host. Opens the store, warns of variables without effect
//	api.go          how a command calls the API: callAPI, apiRunE, withAPI, withRunningAPI, and withAPIOn, which goes to the
//	                server or serves in this process; httpclient.go is the client's transport
//	poll.go         how a command that watches or waits reads the same thing again and again
//	inprocess.go    the API that answers within this process
//	apierror.go     what an error of the API means; exit.go: the exit code of an error
//	args.go         checks of arguments; input.go: what a command reads; help.go: the help text; manpages.go: the manual pages
//	print.go        tables, facts and JSON; format.go: times, durations and numbers in them
//
// A command that reads or changes something calls the API, through api/client. The exceptions:
//
//   - These open the store themselves: the commands that run something on it, "doctor" and "store …". needStore (endpoint.go)
//     refuses them with --server, and if the environment names only a server; the --server of "doctor" names servers to ask as well.
//   - "source beat" calls a server's API with --server, and else stores the heartbeat itself (sourcebeat.go).
//   - "cache …" calls the API of a cache peer: the one at --server, else at $UNDERSTUDY_CACHE_HTTP or $UNDERSTUDY_SERVER, else this host's
//     (cache.go). "cache get" also speaks the cache's own protocol (tcp://…), "cache serve" needs no store, and "cache keygen" and
//     "cache repair" call nothing.
//
// Other packages do the work: internal/settings declares
// the settings (flags, variables and keys), internal/server runs the parts, internal/shardagent runs the agent of a
// shard, internal/doctor checks, internal/demo demonstrates. Of "role run", package elect campaigns and says when the program
// starts and must end, internal/instance runs it, and internal/guard ends it in time, even if this process is stopped or killed.
//
// # Where to add a flag
//
//   - A global one is registered in root.go, a field of app, and checked in prepare (app.go). A command tests a.json() to choose
//     between table and JSON.
//   - One of a command alone is registered where the command is made.
//   - One that is also a key of the server's file is a field in internal/settings, of which strictyaml.Bind makes a flag (of a list only with
//     a flag tag, of a map never). With names it takes those keys: --name, --address, --interval and --timeout of "role run" are fields of
//     settings.Server, --holders, --with, --stop-grace and --pass-store of settings.Role. Without names it takes EVERY key that a flag can hold: a new key of a queue, a
//     job, the cache or a shard is at once a flag of "queue run", "job run", "cache serve" or "shard agent".
//   - Of "serve" alone, file, environment and flags become one in settings.ReadWith. Its flags need a line in applyFlags (serve.go);
//     without it a flag is accepted and has no effect (TestFlagsOfServeHaveAnEffect goes through all). Other commands take a flag's
//     value or default, and warn if the variable of its key is set (warnOfVariables). A key in a list, as each of settings.Role,
//     has no variable (strictyaml.EnvKeys).
//   - The variables of global flags are read in prepare, resolveEndpoint and tokenIn. Precedents for a variable of one command
//     alone are defaultPeers (cacheget.go) and defaultPeer (cache.go). A variable that is not a key's must be listed in otherVariables
//     (internal/settings/env.go): otherwise commands warn that it is unknown.
//   - One about the campaign of "role run", as --holders, is a field of settings.Role, named in the Bind of roleRunCommand and passed to
//     elect.Config in roleRun (rolerun.go) and in internal/server/roles.go, checked in internal/settings/complete.go.
//   - One about the instance, as --address, is a field of settings.Server, named in instanceFlags.register (rolerun.go; "role once",
//     "job run" and "doctor" have it then, too), of instance.Identity, which settings.Server.Instance makes, and of lease.Instance, which
//     Host.WithKeeper (internal/instance) makes. That is a map key, and is converted whole to types of api/apitype and elect: no map or slice.
//     Each store keeps it with the session, PostgreSQL and Redis with the lease, too. What shows it: elect/resolve.go, api
//     (roles.go, sessions.go), api/apitype, role.go, web/. For KEY=VALUE see sourceact.go.
//   - One about the program that "role run", "role once" and "job run" run is a field of settings.Role, named in
//     programFlags.register (rolerun.go; --stop-grace in instanceFlags.register, as "doctor" has it, too), and again of settings.Job,
//     for the file, with flag:"-": "job run" registers programFlags and binds all of settings.Job, and pflag panics at a flag that is
//     registered twice. It goes on in instance.Program, which runProgram, internal/server/roles.go and jobs.go make, and in
//     guard.Config if the guard acts on it; what only sets the program's environment is in guard.Config.Env, which the watchers get, too.
//     What a watcher must know of it is an argument of the watcher from its start (internal/guard/watcher.go).
//   - One that selects what is listed goes through client.KeyQuery (or another query), the handler in api/, dispatch.KeyQuery and each
//     store: follow --blocked of "queue keys". An older server ignores the parameter, and leaves out a new field: the command must not take
//     the whole list for the selected part, nor a missing field for a zero.
//
// Its text is in the command's help and, by hand, in the page of docs/ about the part; manual pages and completions are made from the
// commands. A key also has a line in internal/settings/example.yaml, from which go test ./internal/settings -run TestReference -update
// writes docs/understudy.yaml. testdata/script/ has the tests.
//
// # Where to add a command
//
// Follow "queue remove" through the layers:
//
//	cmd/understudy   queueRemoveCommand (queue.go), listed in queueCommands; testdata/script/queue.txt
//	api/client       Client.RemoveQueue; what goes over the wire is a type of api/apitype
//	api              the route and its handler (a DELETE in removal.go, anything else beside its kin), its description
//	                 (operations_removal_test.go or operations_test.go),
//	                 and openapi.json, which go test ./api -run TestOpenAPI -update writes
//	dispatch         Admin.RemoveQueue (admin.go), which says what it promises; dispatchtest tests that of every store
//	store/sqlite     queue_remove.go
//	store/postgres   queue_admin.go, and functions/queue_admin.sql
//	internal/memstore/queues  act.go
//	web              the button, if the page is to have it
//	docs             the page of the part (dispatch.md), and CHANGELOG.md
package main
