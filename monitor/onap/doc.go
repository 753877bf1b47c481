// Package onap speaks what the ONAP heartbeat service speaks: its control-loop
// events ([ControlLoopEvent]), its configuration ([Parse]), and the ways by which it
// comes by that ([Fetcher]).
//
// # What it promises
//
// A configuration is taken whole or refused: one that is empty, that lacks what
// cannot be guessed, or whose numbers make no sense is an error that says which
// field of which entry is wrong, and the caller keeps the last one. What is odd but
// harmless is a warning. No error and no warning holds the value of a password, or
// of a variable of the environment; a [Secret] prints as nothing but a mark.
//
// A [Fetcher] tries, in this order, a local file, the Config Binding Service and a
// fallback file, each as the original does, but never goes back to a lesser one
// once a better one has answered: a Config Binding Service that is away for a while would
// otherwise put an old file into force. Each request has a deadline, each body a bound;
// requests are repeated with a back-off.
//
// # What it does not promise
//
// In compat mode the events have the original's constants and times, and their
// receiver can tell neither two outages apart nor when they began.
package onap
