// Package headers judges headers that someone configured for requests to a server of theirs.
//
// It promises that what it takes can be sent, and that no error of it shows a value, which may be a secret.
package headers
