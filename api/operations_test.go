package api

import (
	"maps"
	"slices"

	"github.com/understudy-ha/understudy/api/apitype"
)

// pathParams are the parameters of paths. The longest that the path ends in, up to the parameter, counts.
var pathParams = map[string]param{
	"{alarm}":        {schema: `{"type": "string"}`, about: "The request id of an alarm"},
	"{check}":        {schema: `{"type": "string"}`, about: "A check"},
	"{event}":        {schema: `{"type": "string"}`, about: "The name of a check"},
	"{job}":          {schema: `{"type": "string", "minLength": 1, "maxLength": 190}`},
	"{run}":          {schema: `{"type": "string"}`, about: "Its scheduled time, in RFC 3339, or latest: the latest one that has started."},
	"{node}":         {schema: `{"type": "string"}`, about: "Its id, the start of it (4 characters or more), or an address."},
	"{queue}":        {schema: `{"type": "string", "pattern": "^[a-z][a-z0-9._-]{0,31}$"}`},
	"{role}":         {schema: `{"type": "string", "minLength": 1, "maxLength": 190}`},
	"{session}":      {schema: `{"type": "string"}`},
	"{shard}":        {schema: `{"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}`},
	"{source}":       {schema: `{"type": "string"}`, about: "The name of a source; '/' in it is written %2F"},
	"{space}":        {schema: `{"type": "string", "pattern": "^[a-z][a-z0-9._-]{0,31}$"}`},
	"{what}":         {schema: `{"type": "string"}`, about: "start, fail, or the exit code of a run: 0 to 255"},
	"{space}/{key}":  {schema: `{"type": "string", "minLength": 1, "maxLength": 200}`},
	"cache/{key}":    {schema: `{"type": "string", "minLength": 1}`, about: "All that follows /v1/cache/, percent-decoded: any bytes. Slashes need not be encoded."},
	"ping/key/{key}": {schema: `{"type": "string"}`, about: "A ping key"},
	"messages/{id}":  {schema: `{"type": "string", "minLength": 1, "maxLength": 200}`},
	"requests/{id}":  {schema: `{"type": "string"}`},
	"tokens/{id}":    {schema: `{"type": "string", "minLength": 1, "maxLength": 200}`, about: "Its id, or its name while it lives."},
}

// Parameters of several operations.
var (
	contains   = param{name: "contains", about: "Only those whose names contain this, ignoring case."}
	limit      = param{name: "limit", schema: `{"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}`, about: ""}
	part       = param{name: "part", schema: `{"type": "string"}`, about: "Only events of this part: role, once, claim, job, shard, monitor, queue, cache, token, or another space of leases"}
	subject    = param{name: "subject", schema: `{"type": "string"}`, about: "Only events of this subject"}
	note       = param{name: "note", schema: `{"type": "string", "maxLength": 200}`, about: "Why, for the history."}
	by         = param{name: "by", schema: `{"type": "string", "maxLength": 100}`, about: "Who asks, for the history."}
	waitForEnd = param{name: "wait", about: "How long to wait for its end, such as 30s; at most 1m. Default: not at all."}
	cacheWait  = param{name: "wait", schema: `{"type": "string"}`, about: "How long to wait, such as 30s. For a value 10s, at most 5m; for members 10s, for a removal 5s, both at most 10s."}
)

// statusTexts say what an error means, by its status; an operation may say otherwise.
var statusTexts = map[string]string{
	"400": "The input is not acceptable (invalid, unsafe_timing)",
	"401": "The token is missing or wrong (unauthorized)",
	"403": "The token has not the scope that this needs (missing_scope), tokens are managed with the configured token alone (config_token_needed), or a page of another site asked (cross_origin)",
	"404": "There is none (vacant, not_found, no_queue, no_message, store_without_queues, no_shards)",
	"409": "Another session holds it (held: see holder, term and retry_after_ms), or the session does not (not_held)",
	"410": "The session has ended and cannot be renewed: start another (lapsed)",
	"413": "The body has more than 64 KiB, or 16 MiB for messages (too_large)",
	"429": "The caller has asked too often (too_many_requests); see Retry-After",
	"503": "Not done: the store cannot be reached, or too many wait (store_unavailable, busy, not_ready)",
	"504": "The outcome is unknown: read it back before you believe either (unknown_outcome)",
}

// What several operations answer.
var (
	shardConflict  = map[int]string{409: "Not done: something else is under way (under_way) or changes the shard all the time (changed), or it was refused or went back (not_done)"}
	requestAnswers = []reply{
		{200, "It was done while it was waited for", apitype.ShardRequest{}, ""},
		{202, "It has been asked; Location leads to what becomes of it", apitype.ShardRequest{}, ""},
	}
	removedAnswers = []reply{
		{200, "All members have confirmed", apitype.CacheRemoved{}, ""},
		{202, "Not all members have confirmed: the others remove when they are back", apitype.CacheRemoved{}, ""},
	}
)

// addedMessages is what became of one payload, or of many messages.
const addedMessages = `{"content": {"application/json": {"schema": {"oneOf": [{"$ref": "#/components/schemas/AddedMessage"}, {"$ref": "#/components/schemas/AddedMessages"}]}}}}`

// maybeMissing are the tags of what a server or its store may lack: all their operations answer 404 then, with this text or that of
// statusTexts.
var maybeMissing = map[string]string{
	"queues": "", "shards": "", "monitor": "",
	"cache":  "This server runs no peer (no_cache)",
	"jobs":   "No such job or run (no_job), or the store keeps none (store_without_jobs)",
	"tokens": "No such token (no_token), or the store keeps none (store_without_tokens)",
}

// removalErrors are those of removing from the cache.
var removalErrors = map[int]string{
	414: "The key or prefix is longer than the peer allows (key_too_long)",
	503: "The peer stops, or too many wait (stopping, busy)", 504: "Not even this peer answered within the wait: look before you believe either (unknown_outcome)",
}

// cacheErrors are the cache's own texts of these statuses.
func cacheErrors(statuses ...int) map[int]string {
	texts := map[int]string{
		404: "The origin has no such key (not_found), or this server runs no peer (no_cache)",
		414: "The key is longer than the peer allows (key_too_long)",
		416: "The range is not within the value (range)",
		502: "The origin failed, and is not asked again before retry_after_ms (source_failed)",
		503: "This peer must not fetch now, and no copy here would do (partitioned, not_member, passive), or too many wait (busy)",
		504: "The value did not come within the wait (not_yet), or only-if-cached was asked and no copy would do (not_here)",
	}
	maps.DeleteFunc(texts, func(status int, _ string) bool { return !slices.Contains(statuses, status) })
	return texts
}

func messageAction(id, summary, description string) operation {
	return operation{
		id: id, tag: "queues", summary: summary, description: description,
		in:      apitype.Caller{},
		answers: []reply{{200, "It was done", apitype.MessageAction{}, ""}},
		other:   map[int]string{409: "The message is not in a state in which that can be done (wrong_state)"},
	}
}

func retryMessage() operation {
	o := messageAction("retryMessage", "Try a message again, at once",
		"One that blocks its key or is delayed. A dead letter (invalid, failed) or a cancelled one goes to the end of its key. "+
			"One that the target may have is refused (uncertain) unless i_know is true: the target may act on it twice, which can end a Scabbard circuit.")
	o.in = apitype.RetryMessage{}
	o.other = map[int]string{409: "The message is not in a state in which that can be done (wrong_state), or the target may have it (uncertain)"}
	return o
}

// operations describes every route; openapi.json is made of it, of the routes and of package apitype.
var operations = merged(operationsOfParts, operationsOfMonitor, operationsOfJobs, operationsOfRemoval, pingOperations())

var operationsOfParts = map[string]operation{
	"GET /v1/roles": {
		id: "listRoles", tag: "roles",
		summary: "List the roles, their holders and their standbys",
		params:  []param{{name: "after", about: "Only roles whose name is greater."}, contains, limit},
		answers: []reply{{200, "The roles by name", apitype.Roles{}, ""}},
	},
	"GET /v1/roles/{role}": {
		id: "getRole", tag: "roles",
		summary:     "Show who is primary of a role",
		description: "404 with the code vacant when there is none.",
		answers:     []reply{{200, "The primary", apitype.RoleHolders{}, ""}},
		errors:      "404",
	},
	"GET /v1/roles/{role}/self": {
		id: "self", tag: "roles",
		summary:     "Tell whether this instance is primary",
		description: "For load balancers; HEAD too. It asks the process's own trust and never the store, and needs no token.",
		answers:     []reply{{200, "It is", apitype.RoleSelf{}, ""}},
		errors:      "400",
		other:       map[int]string{503: "It is not (code not_primary)"},
	},
	"POST /v1/roles/{role}/resign": {
		id: "resign", tag: "roles",
		summary: "Ask the primary to give the role up",
		in:      apitype.ResignRequest{},
		answers: []reply{{202, "It has been asked", apitype.ResignAccepted{}, ""}},
		errors:  "404",
	},
	"GET /v1/shards": {
		id: "listShards", tag: "shards",
		summary:     "List the shards",
		description: "As they are known here; the header Age tells for how many seconds. While the store does not answer, what was known is given.",
		params: []param{
			{name: "after", about: "Only shards whose name is greater."},
			contains,
			{name: "trouble", schema: `{"type": "boolean", "default": false}`, about: "Only shards that need attention."},
			limit,
		},
		answers: []reply{{200, "The shards by name", apitype.Shards{}, ""}},
	},
	"GET /v1/shards/{shard}": {
		id: "getShard", tag: "shards",
		summary: "Show a shard with its nodes, its plan and the latest one",
		answers: []reply{{200, "The shard", apitype.Shard{}, ""}},
	},
	"GET /v1/shards/{shard}/primary": {
		id: "getShardPrimary", tag: "shards",
		summary:     "Tell where the primary of a shard is",
		description: "503 with the code no_primary and the reason while there is none: before the first, while it is replaced, and when it is down. While the store does not answer, what was known is given; the header Age tells for how many seconds.",
		params: []param{
			{name: "wait", about: "How long to wait until there is one, such as 10s; at most 1m. Default: not at all."},
		},
		answers: []reply{{200, "The primary", apitype.ShardPrimary{}, ""}},
		other:   map[int]string{503: "The shard has no primary now, and detail says why (no_primary), or the store cannot be reached (store_unavailable)"},
	},
	"POST /v1/shards/{shard}/switchover": {
		id: "switchShardOver", tag: "shards",
		summary:     "Ask for another primary while the present one is well",
		description: "No acknowledged write is lost. If it cannot be done in time, everything goes back to where it was.",
		params: []param{
			waitForEnd,
		},
		in:      apitype.SwitchoverRequest{},
		answers: requestAnswers,
		other:   shardConflict,
	},
	"POST /v1/shards/{shard}/failover": {
		id: "failShardOver", tag: "shards",
		summary:     "Ask for another primary in place of one that has ended",
		description: "With force also of one of which nobody knows whether it is, or by a node that lacks data: what it lacks is lost.",
		params: []param{
			waitForEnd,
		},
		in:      apitype.FailoverRequest{},
		answers: requestAnswers,
		other:   shardConflict,
	},
	"GET /v1/shards/{shard}/requests/{id}": {
		id: "getShardRequest", tag: "shards",
		summary:     "Tell what has become of a request",
		description: "Only the latest is known.",
		params: []param{
			waitForEnd,
		},
		answers: []reply{{200, "The request", apitype.ShardRequest{}, ""}},
	},
	"DELETE /v1/shards/{shard}/requests/{id}": {
		id: "cancelShardRequest", tag: "shards",
		summary:     "Take a request back that no agent has started on",
		description: "Without effect when one has.",
		params: []param{
			by,
		},
		answers: []reply{{204, "It is not waiting any more", nil, ""}},
		other:   shardConflict,
	},
	"POST /v1/shards/{shard}/pause": {
		id: "pauseShard", tag: "shards",
		summary:     "Keep a shard from failing over by itself",
		description: "A plan that is under way goes on, and operators can ask for one.",
		in:          apitype.PauseRequest{},
		answers:     []reply{{200, "The shard", apitype.Shard{}, ""}},
		other:       shardConflict,
	},
	"POST /v1/shards/{shard}/resume": {
		id: "resumeShard", tag: "shards",
		summary: "Let a paused shard fail over by itself again",
		in:      apitype.Caller{},
		answers: []reply{{200, "The shard", apitype.Shard{}, ""}},
		other:   shardConflict,
	},
	"DELETE /v1/shards/{shard}/nodes/{node}": {
		id: "forgetShardNode", tag: "shards",
		summary:     "Forget a node that is gone for good",
		description: "Its agent must have stopped: one that still reports would bring it back. The primary cannot be forgotten.",
		params: []param{
			by,
		},
		answers: []reply{{204, "It is forgotten", nil, ""}},
		other:   shardConflict,
	},
	"GET /v1/sessions": {
		id: "listSessions", tag: "sessions",
		summary: "List the live sessions",
		params:  []param{{name: "after", about: "As next of the page before."}, contains, limit},
		answers: []reply{{200, "The sessions, oldest first; their ids are their owners' alone", apitype.Sessions{}, ""}},
	},
	"POST /v1/sessions": {
		id: "startSession", tag: "sessions",
		summary: "Start a session",
		in:      apitype.NewSession{},
		answers: []reply{{201, "It lives", apitype.StartedSession{}, ""}},
	},
	"POST /v1/sessions/renew": {
		id: "renewSessions", tag: "sessions",
		summary:     "Renew up to 1,000 sessions of a process",
		description: "Each session is then renewed or lapsed. An error is about all: send them again.",
		in:          apitype.SessionIDs{},
		answers:     []reply{{200, "Which were renewed, and which have ended", apitype.Renewals{}, ""}},
	},
	"POST /v1/sessions/{session}/renew": {
		id: "renewSession", tag: "sessions",
		summary: "Renew a session",
		answers: []reply{{200, "It was renewed", apitype.Renewal{}, ""}},
		errors:  "410",
	},
	"DELETE /v1/sessions/{session}": {
		id: "endSession", tag: "sessions",
		summary: "End a session and release all that it holds",
		answers: []reply{{204, "It has ended; it may have been before", nil, ""}},
	},
	"GET /v1/leases/{space}": {
		id: "listLeases", tag: "leases",
		summary: "List the leases of a space",
		params: []param{
			{name: "after", about: "Only keys greater than this"},
			limit,
		},
		answers: []reply{{200, "The leases by key", apitype.Leases{}, ""}},
	},
	"GET /v1/leases/{space}/{key}": {
		id: "getLease", tag: "leases",
		summary: "Show a lease",
		answers: []reply{{200, "The lease", apitype.Lease{}, ""}},
		errors:  "404",
	},
	"PUT /v1/leases/{space}/{key}": {
		id: "putLease", tag: "leases",
		summary:     "Take a lease for a session",
		description: "Asking again for what the session holds succeeds and changes nothing, so that a request whose answer was lost can be repeated. Roles are the leases of the space role.",
		params: []param{
			{name: "wait", schema: `{"type": "string", "default": "0s", "examples": ["10s"]}`, about: "Wait this long for it, at most 60s. The session must be renewed meanwhile."},
		},
		in:      apitype.AcquireRequest{},
		answers: []reply{{200, "The session holds it", apitype.Lease{}, ""}},
		errors:  "409 410",
	},
	"DELETE /v1/leases/{space}/{key}": {
		id: "releaseLease", tag: "leases",
		summary: "Give a lease back",
		in:      apitype.ReleaseRequest{},
		answers: []reply{{204, "It is free, or kept for the successor", nil, ""}},
		errors:  "409 410",
	},
	"GET /v1/leases/{space}/{key}/state": {
		id: "getLeaseState", tag: "leases",
		summary: "Show what the holders of a lease keep beside it",
		answers: []reply{{200, "The state", apitype.LeaseState{}, ""}},
		errors:  "404",
	},
	"PUT /v1/leases/{space}/{key}/state": {
		id: "putLeaseState", tag: "leases",
		summary:     "Replace what the holders of a lease keep beside it",
		description: "Only under the present term: 409 not_held otherwise. Up to 64 KiB, in base64. Who takes the lease next gets it with the answer.",
		in:          apitype.LeaseState{},
		answers:     []reply{{204, "It is written", nil, ""}},
		errors:      "409",
	},
	"GET /v1/overview": {
		id: "overview", tag: "overview",
		summary: "Is everything held, what changed in the last hour, and what needs attention",
		answers: []reply{{200, "Everything at a glance, about two seconds old. Lists are bounded; what they leave out is counted", apitype.Overview{}, ""}},
	},
	"GET /v1/series": {
		id: "series", tag: "overview",
		summary: "How takeovers, replication lag, beats and queues went in the last hour",
		params:  []param{{name: "name", schema: `{"type": "array", "items": {"type": "string"}, "maxItems": 20}`, about: "Once for each series that is wanted with its points: takeover, lag, beats, depth, or one of its own as takeover/role/NAME, takeover/shard/NAME, lag/SHARD, depth/QUEUE. Those that are not there are left out. Without it, all names are listed"}},
		answers: []reply{{200, "The series that this server keeps since it started", apitype.SeriesList{}, ""}},
	},
	"GET /v1/tokens": {
		id: "listTokens", tag: "tokens",
		summary: "List the tokens of the store",
		answers: []reply{{200, "The tokens, the oldest first, those that have ended too; without their secrets", apitype.Tokens{}, ""}},
	},
	"POST /v1/tokens": {
		id: "createToken", tag: "tokens",
		summary: "Create a token",
		in:      apitype.NewToken{},
		answers: []reply{{201, "The token, and its secret, which is shown this once", apitype.TokenSecret{}, ""}},
		other:   map[int]string{409: "A token that lives has the name (taken), or there are a thousand that live (too_many_tokens)"},
	},
	"DELETE /v1/tokens/{id}": {
		id: "revokeToken", tag: "tokens",
		summary:     "End a token for good",
		description: "This server refuses it at once, others within two seconds while they reach the store. One that was revoked already stays as it is.",
		params: []param{
			by,
		},
		answers: []reply{{200, "The token as it is now", apitype.Token{}, ""}},
	},
	"GET /v1/history": {
		id: "history", tag: "history",
		summary: "Read what changed hands",
		params: []param{
			part,
			subject,
			{name: "after", schema: `{"type": "integer", "format": "int64"}`, about: "Only larger ids"},
			{name: "before", schema: `{"type": "integer", "format": "int64"}`, about: "Only smaller ids; not together with after"},
			limit,
		},
		answers: []reply{{200, "Events in ascending order: the newest that match or, with after, the oldest after it", apitype.Events{}, ""}},
	},
	"GET /v1/events": {
		id: "events", tag: "history",
		summary: "Follow what changes hands",
		params: []param{
			part,
			subject,
			{name: "state", schema: `{"type": "boolean", "default": false}`, about: "Also send, each second, all that the page shows"},
			{name: "after", schema: `{"type": "integer", "format": "int64"}`, about: "As Last-Event-ID; 0 is from the beginning"},
			{in: "header", name: "Last-Event-ID", schema: `{"type": "integer", "format": "int64"}`, about: "The last event that was seen"},
		},
		answers: []reply{{200, "Events named history, each with its id and an Event as data; with state=true also events named state. Without Last-Event-ID and after it starts with the id of the newest event, alone. A comment every 15 s. A reader that is slow is left out and comes back with Last-Event-ID.", nil, `{"content": {"text/event-stream": {"schema": {"type": "string"}}}}`}},
	},
	"GET /v1/queues": {
		id: "listQueues", tag: "queues",
		summary:     "List the queues at a glance",
		description: "As they were at most one second ago. 404 with the code store_without_queues when the store keeps none, here and below.",
		params:      []param{{name: "after", about: "Only queues whose name is greater."}, contains, limit},
		answers:     []reply{{200, "The queues by name", apitype.Queues{}, ""}},
	},
	"POST /v1/queues": {
		id: "createQueue", tag: "queues",
		summary:     "Create a queue",
		description: "One that is there is left as it is.",
		in:          apitype.QueueName{},
		answers: []reply{
			{200, "It was there already", apitype.QueueName{}, ""},
			{201, "It was created", apitype.QueueName{}, ""},
		},
	},
	"GET /v1/queues/{queue}": {
		id: "getQueue", tag: "queues",
		summary: "Tell how a queue is doing",
		answers: []reply{{200, "The queue", apitype.Queue{}, ""}},
	},
	"GET /v1/queues/{queue}/keys": {
		id: "listKeys", tag: "queues",
		summary: "List the keys of a queue that have something to do",
		params: []param{
			{name: "blocked", schema: `{"type": "boolean", "default": false}`, about: "Only those that wait for an operator"},
			{name: "idle", schema: `{"type": "boolean", "default": false}`, about: "Also those with nothing to do"},
			{name: "after", about: "Only keys after this one: the next of the last answer"},
			limit,
		},
		answers: []reply{{200, "Keys in the order of their bytes; next is missing when there are no more", apitype.Keys{}, ""}},
	},
	"GET /v1/queues/{queue}/messages": {
		id: "listMessages", tag: "queues",
		summary: "List the messages of a queue, those that have ended too",
		params: []param{
			{name: "key", about: "Only messages of this key"},
			{name: "state", schema: `{"type": "string", "enum": ["scheduled", "queued", "submitting", "pending", "valid", "delayed", "unknown", "committed", "invalid", "failed", "cancelled"]}`, about: "Only messages in this state; scheduled ones are listed with it alone"},
			{name: "after", about: "next of the last answer: go on from there"},
			limit,
		},
		answers: []reply{{200, "Messages in the order of key and seq, without trail; next is missing when there are no more", apitype.Messages{}, ""}},
	},
	"POST /v1/queues/{queue}/messages": {
		id: "addMessages", tag: "queues",
		summary:     "Enqueue one payload as it is, or many messages at once",
		description: "With key in the query the body is the payload, and its Content-Type is kept. Without, the body is JSON with up to 1,000 messages, which are stored all or none. A message whose id the queue has already is not stored again, so that a request without an answer can be repeated if it gave the ids.",
		params: []param{
			{name: "key", schema: `{"type": "string", "minLength": 1, "maxLength": 200}`, about: ""},
			{name: "id", schema: `{"type": "string", "maxLength": 200}`, about: "Unique in the queue; a random one if it is missing"},
		},
		in:      apitype.NewMessages{},
		inOther: `{"application/octet-stream": {"schema": {"type": "string", "format": "binary", "maxLength": 16777216}}}`,
		answers: []reply{
			{200, "Nothing is new: the queue had every id already", nil, addedMessages},
			{201, "The payload was stored, or at least one of many: what became of each, in their order", nil, addedMessages},
		},
	},
	"GET /v1/queues/{queue}/messages/{id}": {
		id: "getMessage", tag: "queues",
		summary: "Tell everything about a message but its payload",
		answers: []reply{{200, "The message with its trail", apitype.Message{}, ""}},
	},
	"GET /v1/queues/{queue}/messages/{id}/payload": {
		id: "getPayload", tag: "queues",
		summary: "Return the payload of a message, as it was given",
		answers: []reply{{200, "The payload, with the content type that it was given with", nil, `{"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}`}},
	},
	"POST /v1/queues/{queue}/messages/{id}/retry": retryMessage(),
	"POST /v1/queues/{queue}/messages/{id}/skip": messageAction("skipMessage", "Give a message up",
		"One that blocks its key, is delayed or unknown: it ends as failed, or stays invalid, and the next of its key goes on."),
	"POST /v1/queues/{queue}/messages/{id}/cancel": messageAction("cancelMessage", "Take out a message that was never sent", "It ends as cancelled."),
	"GET /v1/cache/{key}": {
		id: "getCached", tag: "cache",
		summary:     "Return the value of a key",
		description: "HEAD too. A copy that is here is given at once, however stale unless max-stale says otherwise; a stale one has a peer fetch a new one meanwhile. Without a copy that would do, the request waits. Conditional requests and ranges are answered. Of the request's Cache-Control: no-cache has the value fetched now; max-age=N takes no copy older than N seconds, nor a stale one unless max-stale precedes it; max-stale=N and min-fresh=N say how late or early it may expire; only-if-cached asks nobody. The query counts more than the header.",
		params: []param{
			{name: "max-stale", about: "How long ago the copy may have expired, such as 30s; 0 takes fresh ones only. Missing: however long."},
			{name: "refresh", schema: `{"type": "boolean", "default": false}`, about: "Fetch it now, and wait for it."},
			cacheWait,
		},
		answers: []reply{
			{200, "The value", nil, `{"headers": {"ETag": {"schema": {"type": "string"}, "description": "Strong: term and digest."}, "Age": {"schema": {"type": "integer"}, "description": "Seconds since its fetch began, by the wall clocks of the peers."}, "Cache-Control": {"schema": {"type": "string"}, "description": "max-age=: how long it is fresh, from the start of its fetch."}, "Expires": {"schema": {"type": "string"}}, "Last-Modified": {"schema": {"type": "string"}, "description": "When its fetch began, if that is known."}, "X-Cache": {"schema": {"type": "string", "enum": ["hit", "stale", "miss"]}, "description": "A fresh copy was here; an old one was; it was waited for."}, "Understudy-Term": {"schema": {"type": "integer", "format": "int64"}, "description": "Of the fetch."}}, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}`},
			{206, "The range that was asked for", nil, ""},
			{304, "It has not changed", nil, ""},
		},
		other: cacheErrors(404, 414, 416, 502, 503, 504),
	},
	"DELETE /v1/cache/{key}": {
		id: "removeCached", tag: "cache",
		summary:     "Remove the copies of a key on every peer",
		description: "It cannot be undone by a slower peer: copies that were fetched before are refused from now on.",
		params:      []param{cacheWait},
		answers:     removedAnswers,
		other:       removalErrors,
	},
	"GET /v1/cache": {
		id: "listCached", tag: "cache",
		summary: "List the keys of this peer, in order",
		params: []param{
			{name: "prefix", about: "Only keys that begin with it"},
			{name: "after", about: "Only keys after this one"},
			limit,
		},
		answers: []reply{{200, "The keys, and where to go on if there may be more", apitype.CacheKeys{}, ""}},
		other:   cacheErrors(503),
	},
	"DELETE /v1/cache": {
		id: "removeManyCached", tag: "cache",
		summary:     "Remove a key, all keys with a prefix, or all keys, on every peer",
		description: "One of key, prefix and all must be given.",
		params: []param{
			{name: "key", about: "As DELETE /v1/cache/{key}, for keys that a path cannot carry everywhere, such as .."},
			{name: "prefix", about: ""},
			{name: "all", schema: `{"type": "boolean", "default": false}`, about: "Every key."},
			cacheWait,
		},
		answers: removedAnswers,
		other:   removalErrors,
	},
	"POST /v1/cache-refresh": {
		id: "refreshCached", tag: "cache",
		summary: "Have a key fetched now, and wait for it",
		params: []param{
			{name: "key", about: "", required: true},
			cacheWait,
		},
		answers: []reply{{200, "What came, without its value", apitype.CacheItem{}, ""}},
		other:   cacheErrors(404, 414, 502, 503, 504),
	},
	"GET /v1/cache-peers": {
		id: "cachePeers", tag: "cache",
		summary: "Tell how this peer sees its cluster",
		answers: []reply{{200, "The cluster", apitype.CacheCluster{}, ""}},
		other:   cacheErrors(503),
	},
	"GET /v1/cache-events": {
		id: "cacheEvents", tag: "cache",
		summary:     "Follow what this peer does about its keys",
		description: "Server-sent events named cache. Nothing is kept: a reader that is slow misses some, and is told how many.",
		params: []param{
			{name: "prefix", about: "Only keys that begin with it"},
			{name: "state", schema: `{"type": "boolean", "default": false}`, about: "Also an event named state every second, with all that the page shows but the keys; its form may change."},
		},
		answers: []reply{{200, "The stream; a comment every 15 s says that the server is there", nil, `{"content": {"text/event-stream": {"schema": {"$ref": "#/components/schemas/CacheEvent"}}}}`}},
		other:   cacheErrors(503),
	},
	"GET /metrics": {
		id: "metrics", tag: "operation",
		summary: "Metrics for Prometheus",
		answers: []reply{{200, "The metrics", nil, `{"content": {"text/plain": {"schema": {"type": "string"}}}}`}},
	},
	"GET /healthz": {
		id: "healthz", tag: "operation",
		summary: "Tell that the process is up",
		answers: []reply{{200, "It is", apitype.Ready{}, ""}},
	},
	"GET /readyz": {
		id: "readyz", tag: "operation",
		summary:     "Tell whether this server is ready",
		description: "It is when the store has answered a read in the last 5 s and accepts what this process writes, the monitor has its checks, and the cache's peer can fetch, as far as it has them.",
		answers:     []reply{{200, "All of it is so", apitype.Ready{}, ""}},
		errors:      "503",
	},
	"GET /openapi.json": {
		id: "openapi", tag: "operation",
		summary: "This document",
		answers: []reply{{200, "This document", nil, `{"content": {"application/json": {"schema": {"type": "object"}}}}`}},
	},
}
