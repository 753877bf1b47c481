package api

import (
	"strings"

	"github.com/understudy-ha/understudy/api/apitype"
)

// operationsOfMonitor are those of checks, sources, heartbeats and alarms.
var operationsOfMonitor = map[string]operation{
	"GET /v1/monitor": {
		id: "getMonitor", tag: "monitor",
		summary: "Show the monitor at a glance",
		answers: []reply{{200, "Checks with the states of their sources, paths, sinks, instances, and what this instance does", apitype.MonitorWithInstance{}, ""}},
	},
	"PUT /v1/monitor/configuration": {
		id: "configureMonitor", tag: "monitor",
		summary:     "Apply all checks",
		description: "Whole or not at all; intake and detection go on meanwhile. Checks that are not in it are removed, unless keep is true: their open alarms end, and their sources are forgotten.",
		in:          apitype.MonitorConfiguration{},
		answers:     []reply{{200, "What changed", apitype.ConfigurationChange{}, ""}},
	},
	"GET /v1/monitor/rejected": {
		id: "listRejectedInput", tag: "monitor",
		summary: "List messages that this instance could not take",
		answers: []reply{{200, "The newest first, and how many there were of each cause since the process started", apitype.RejectedInputs{}, ""}},
	},
	"GET /v1/checks": {
		id: "listChecks", tag: "monitor",
		summary: "List the checks",
		params:  []param{{name: "after", about: "Only checks whose name is greater."}, contains, limit},
		answers: []reply{{200, "By name", apitype.Checks{}, ""}},
	},
	"GET /v1/checks/{check}": {
		id: "getCheck", tag: "monitor",
		summary: "Show a check",
		answers: []reply{{200, "The check", apitype.CheckCount{}, ""}},
	},
	"PUT /v1/checks/{check}": {
		id: "putCheck", tag: "monitor",
		summary:     "Add or change a check",
		description: "What is left out has its default. A shorter limit gives every source a whole one from now. What GET shows may be sent back: the counts change nothing.",
		in:          apitype.Check{},
		answers:     []reply{{200, "What changed", apitype.ConfigurationChange{}, ""}},
	},
	"POST /v1/checks/{check}/pause":            monitorAction("pauseCheck", "Pause a check", "Sources of a paused check raise no alarms. When it is resumed each has a whole limit to show itself."),
	"POST /v1/sources/{check}/{source}/pause":  monitorAction("pauseSource", "Pause a source", "A paused source raises no alarm, for for_ms or until it is resumed; then it has a whole limit to show itself."),
	"POST /v1/checks/{check}/resume":           monitorAction("resumeCheck", "Resume a check", "Each of its sources has a whole limit to show itself."),
	"POST /v1/sources/{check}/{source}/resume": monitorAction("resumeSource", "Resume a source", "It has a whole limit to show itself."),
	"GET /v1/sources": {
		id: "listSources", tag: "monitor",
		summary: "List sources",
		params: []param{
			{name: "check", about: "Only of this check"},
			{name: "source", about: "Only of this name"},
			{name: "state", schema: `{"type": "string", "enum": ["up", "down", "paused", "retired"]}`, about: "Only in this state"},
			{name: "label", about: "Only with this label, as name=value"},
			{name: "contains", about: "Only those whose names contain this, ignoring case. It looks at up to 10,000 sources: an answer with next may have fewer than the limit, or none."},
			{name: "after", about: "next of the last answer: go on from there"},
			limit,
		},
		answers: []reply{{200, "In the order of event and name; next is missing when there are no more", apitype.Sources{}, ""}},
	},
	"POST /v1/sources": {
		id: "declareSources", tag: "monitor",
		summary:     "Declare sources",
		description: "A declared source that never beats raises an alarm after a whole limit. Up to 1,000 at once, all or none.",
		in:          apitype.Declarations{},
		answers: []reply{
			{200, "All were declared already", apitype.Declared{}, ""},
			{201, "How many were declared, and how many of them are new", apitype.Declared{}, ""},
		},
	},
	"GET /v1/sources/{check}/{source}": {
		id: "getSource", tag: "monitor",
		summary: "Show a source and its last alarms",
		answers: []reply{{200, "The source", apitype.SourceAlarms{}, ""}},
	},
	"GET /v1/sources/{check}/{source}/badge.svg": {
		id: "sourceBadge", tag: "monitor",
		summary: "Draw the state of a source",
		answers: []reply{{200, "An image", nil, `{"content": {"image/svg+xml": {"schema": {"type": "string"}}}}`}},
	},
	"POST /v1/sources/{check}/{source}/retire": monitorAction("retireSource", "Retire a source", "Its alarm ends, and it is not judged any more; a beat brings it back."),
	"GET /v1/alarms": {
		id: "listAlarms", tag: "monitor",
		summary: "List alarms",
		params: []param{
			{name: "open", schema: `{"type": "boolean", "default": false}`, about: "Only those that have not ended"},
			{name: "check", about: "Only of this check"},
			{name: "source", about: "Only of this source"},
			{name: "after", about: "next of the last answer: go on from there"},
			limit,
		},
		answers: []reply{{200, "The newest first; next is missing when there are no more", apitype.Alarms{}, ""}},
	},
	"GET /v1/alarms/{alarm}": {
		id: "getAlarm", tag: "monitor",
		summary: "Show an alarm",
		answers: []reply{{200, "The alarm", apitype.Alarm{}, ""}},
	},
	"POST /v1/alarms/{alarm}/acknowledge": monitorAction("acknowledgeAlarm", "Acknowledge an alarm", "It stays open; the page and the history show who knows of it."),
	"GET /badge/{check}/{source}/{signature}": {
		id: "getPublicBadge", tag: "monitor",
		summary: "Draw the state of a source, for anyone who has the link", description: "Its path is the field badge of the source.",
		answers: []reply{{200, "The badge", nil, `{"content": {"image/svg+xml": {"schema": {"type": "string"}}}}`}},
		errors:  "400 404 503",
	},
	"GET /acknowledge/{alarm}/{signature}":  acknowledgeOperation("showAcknowledge", "Show an alarm, with a button that acknowledges it", problemContent),
	"POST /acknowledge/{alarm}/{signature}": acknowledgeOperation("acknowledgeByLink", "Acknowledge an alarm, by the link in its message", `"text/html": {"schema": {"type": "string"}}, `+problemContent),
	"POST /v1/beats": {
		id: "sendBeats", tag: "monitor",
		summary:     "Send beats",
		description: "One or an array, as below or as VES events; newline-delimited JSON too, and gzip. The answer comes when they are stored. It needs the server's token, if there is one, or a ping key that is for the check. A body of one beat that is not accepted is answered 400, 403 or 404, with the same counts instead of a problem.",
		inOther:     `{"application/json": {"schema": {"oneOf": [{"$ref": "#/components/schemas/Beat"}, {"type": "array", "items": {"$ref": "#/components/schemas/Beat"}}]}}, "application/x-ndjson": {"schema": {"type": "string"}}}`,
		answers: []reply{
			{200, "They are stored", apitype.BeatsTaken{}, ""},
			{202, "Some were not accepted: the counts tell", apitype.BeatsTaken{}, ""},
			{400, "The body cannot be read, or its one beat is not accepted", nil, countsOrProblem},
			{403, "The ping key is not for that check (forbidden), or not for the one beat", nil, countsOrProblem},
			{404, "The check of the one beat is not known", nil, countsOrProblem},
		},
		errors: "401 413 503",
		other: map[int]string{
			415: "Neither JSON nor newline-delimited JSON, or packed otherwise than by gzip (media_type)",
			429: "Too much is waiting here (busy), or too many wrong keys are being answered (too_many_wrong_keys)",
		},
	},
	"POST /eventListener/v7":            vesOperation("vesEvent", "Send an event, as to a VES collector"),
	"POST /eventListener/v7/eventBatch": vesOperation("vesEventBatch", "Send events, as to a VES collector"),
}

// countsOrProblem is the body of a refusal of one beat, or of everything.
const countsOrProblem = `{"content": {"application/json": {"schema": {"$ref": "#/components/schemas/BeatsTaken"}}, "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}`

func monitorAction(id, summary, description string) operation {
	return operation{
		id: id, tag: "monitor", summary: summary, description: description,
		in:      apitype.MonitorAction{},
		answers: []reply{{200, "It is done", apitype.MonitorDone{}, ""}},
	}
}

const problemContent = `"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}`

// acknowledgeOperation is one of a page; refusals is the content of its 400.
func acknowledgeOperation(id, summary, refusals string) operation {
	return operation{
		id: id, tag: "monitor", summary: summary, description: "The link is the field acknowledge of an alarm's message, if public_url is set.",
		answers: []reply{
			{200, "A page", nil, `{"content": {"text/html": {"schema": {"type": "string"}}}}`},
			{400, "The link or the name of who acknowledges is not valid", nil, `{"content": {` + refusals + `}}`},
		},
		errors: "404 503",
	}
}

func vesOperation(id, summary string) operation {
	op := operation{
		id: id, tag: "monitor", summary: summary,
		description: "It needs the server's token, if there is one, or a ping key that is for the check.",
		inOther:     `{"application/json": {"schema": {"type": "object"}}}`,
		answers:     []reply{{202, "Stored", nil, ""}},
	}
	for _, status := range []int{400, 401, 413, 415, 429, 503} {
		op.answers = append(op.answers, reply{status, "requestError, as VES has it", nil, `{"content": {"application/json": {"schema": {"type": "object"}}}}`})
	}
	return op
}

// pingOperations are those of all forms of a ping, by each method that they take.
func pingOperations() map[string]operation {
	out := map[string]operation{}
	stored := reply{200, "OK: it is stored", nil, `{"content": {"text/plain": {"schema": {"type": "string"}}}}`}
	describe := func(method, path, id, summary, description string, answer reply) {
		out[method+" "+path] = operation{
			id: strings.ToLower(method) + id, tag: "monitor", summary: summary, description: description,
			answers: []reply{answer},
			errors:  "400 401 404 413 503",
			other: map[int]string{
				403: "The ping key is not for that check (forbidden)",
				405: "The ping key accepts only POST (method_not_allowed)",
				429: "Too much is waiting here (busy), or too many wrong keys are being answered (too_many_wrong_keys)",
			},
		}
		if strings.Contains(path, "{id}") {
			out[method+" "+path].other[409] = "Two sources have this ID (ambiguous)"
		}
	}
	add := func(path, id, summary, description string) {
		for _, method := range []string{"GET", "POST"} {
			describe(method, path, id, summary, description, stored)
		}
	}
	byID := "The ID is the label ping of a source. One that is a UUID is its own key; for others it needs the server's token, if there is one, or a ping key. "
	add("/ping/{id}", "PingByID", "Tell that a source is alive, as to healthchecks.io", byID+"?rid= names the run, by a UUID. The first 10,000 bytes of a body are kept.")
	add("/ping/{id}/{what}", "PingSignalByID", "Tell that a run starts, failed, or ended with an exit code, or send a log, as to healthchecks.io", byID+"?rid= names the run, by a UUID.")
	for _, method := range []string{"GET", "POST", "PUT", "PATCH"} {
		describe(method, "/v2/heartbeats/{id}/ping", "OpsgenieHeartbeat", "Tell that a source is alive, as to Opsgenie",
			byID+"The key is sent as Authorization: GenieKey KEY. Errors are as Opsgenie has them.", reply{202, "PONG: it is stored", nil, ""})
	}
	describe("POST", "/v1/watchdog/{event}/{source}", "Watchdog", "Take a notification of Alertmanager's webhook as a heartbeat",
		"Of an alert that fires all the time: while it fires the source is alive. It needs the server's token, if there is one, or a ping key that is for the check.",
		reply{204, "It is stored, or no alert of it fires", nil, ""})
	out["POST /v1/watchdog/{event}/{source}"].other[415] = "Not JSON, or packed otherwise than by gzip (media_type)"
	add("/v1/ping/{event}/{source}", "Ping", "Tell that a source is alive", "It needs the server's token, if there is one, or a ping key that is for the check. The key may also be given as ?key=.")
	add("/v1/ping/{event}/{source}/{what}", "PingSignal", "Tell that a run starts, failed, or ended with an exit code", "It needs the server's token, if there is one, or a ping key that is for the check. The key may also be given as ?key=.")
	add("/v1/ping/key/{key}/{event}/{source}", "PingWithKey", "Tell that a source is alive", "")
	add("/v1/ping/key/{key}/{event}/{source}/{what}", "PingSignalWithKey", "Tell that a run starts, failed, or ended with an exit code", "")
	return out
}
