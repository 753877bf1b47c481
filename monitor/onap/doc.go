// Package onap implements the formats of the ONAP heartbeat service: its control-loop
// events ([ControlLoopEvent]), its configuration ([Parse]), and the places where it
// finds its configuration ([Fetcher]).
//
// # What it promises
//
// A configuration is accepted whole or refused. If it is empty, lacks a required value
// or has impossible numbers, the error says which
// field of which entry is wrong, and the caller keeps the last configuration. Odd but
// harmless values are warnings. No error or warning contains the value of a password or
// of an environment variable; a [Secret] prints as a mark.
//
// A [Fetcher] tries, in this order, a local file, the Config Binding Service and a
// fallback file, each as the original does, but never returns to a lower one
// after a higher one has answered: a Config Binding Service that is unavailable for a while would
// otherwise bring an old file into force. Each request has a deadline, each body a bound;
// requests are repeated with a back-off.
//
// # What it does not promise
//
// In compat mode the events have the original's constants and times, so their
// receiver can neither tell two outages apart nor see when they started.
package onap
