package api

// operationsOfRemoval describe how things are deleted.
var operationsOfRemoval = map[string]operation{
	"DELETE /v1/roles/{role}": {
		id: "forgetRole", tag: "roles",
		summary:     "Forget a role that nobody holds or waits for",
		description: "If its last holder did not release it, the answer comes when the timeout of that one's session has been counted, at most a minute. The role's terms still never fall.",
		params:      []param{by},
		answers:     []reply{{204, "It is forgotten", nil, ""}},
		errors:      "404 409",
	},
	"DELETE /v1/queues/{queue}": {
		id: "removeQueue", tag: "queues",
		summary:     "Remove a queue that no instance delivers",
		description: "With all that was ever in it. One that is made again under its name starts again at nothing.",
		params: []param{
			{name: "messages", schema: `{"type": "integer", "minimum": 0, "default": 0}`, about: "How many of its messages wait, are in flight or are dead letters: all are lost. Without it the queue must have none."},
			by,
		},
		answers: []reply{{204, "It is gone", nil, ""}},
		other:   map[int]string{409: "It has another number of messages, which detail tells, an instance delivers it, or it receives the alarms of a sink (wrong_state)"},
	},
	"DELETE /v1/shards/{shard}": {
		id: "removeShard", tag: "shards",
		summary:     "Remove a shard whose agents have stopped",
		description: "The data on its nodes stays. An agent that is started again makes a new shard of the name.",
		params:      []param{by},
		answers:     []reply{{204, "It is gone", nil, ""}},
		other:       shardConflict,
	},
	"DELETE /v1/sources/{check}/{source}": {
		id: "removeSource", tag: "monitor",
		summary:     "Remove a source that has no open alarm",
		description: "One that still sends heartbeats is learned again, unless its check is fixed.",
		params:      []param{by},
		answers:     []reply{{204, "It is gone", nil, ""}},
		other:       map[int]string{409: "An alarm of it is open: retire it first (alarm_open)"},
	},
	"DELETE /v1/monitor/sinks/{sink}": {
		id: "removeSink", tag: "monitor",
		summary:     "Remove a sink, which gets no more alarms",
		description: "Alarms that wait in its queue stay there. An instance that delivers to it registers it again when it starts.",
		params:      []param{by, note},
		answers:     []reply{{204, "It is removed", nil, ""}},
	},
	"DELETE /v1/monitor/paths/{path}": {
		id: "removePath", tag: "monitor",
		summary:     "Forget an intake path that is no longer used",
		description: "While a path is known and not proven to work, the sources whose last heartbeat came by it are not judged. Afterwards they are judged by the path that was proven last.",
		params:      []param{by, note},
		answers:     []reply{{204, "It is forgotten", nil, ""}},
	},
	"DELETE /v1/checks/{check}": {
		id: "removeCheck", tag: "monitor",
		summary:     "Remove a check",
		description: "Its alarms end and its sources are forgotten. A server whose file has the check adds it again when it starts.",
		params:      []param{by},
		answers:     []reply{{204, "It is removed", nil, ""}},
	},
}
