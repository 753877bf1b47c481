// Package apitype holds every JSON type of the API, and nothing else: the server (package api), its client
// (package client) and the command line share these types, and openapi.json is generated from them.
//
// The package imports only the standard library, so that a program can decode an answer without linking the server.
//
//   - Durations are whole milliseconds, in fields that end in _ms.
//   - Times are RFC 3339 in UTC, by the store's clock unless a comment says otherwise.
//   - A field that is left out of an answer has its zero value.
//   - A list is an object: the list under the name of its items, and next when there may be more. Pass next back as
//     the query parameter after, or before for the runs of a job.
//
// A doc comment of a field is its description in openapi.json; the tag enum lists its values.
package apitype
