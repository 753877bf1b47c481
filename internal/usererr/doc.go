// Package usererr marks the errors of people: what they typed, or wrote into a file, cannot be done as it stands.
//
// It promises that such an error is told apart from all others, however deep it was wrapped, and reads as the
// sentence that it was made of. The command line exits with 2 for it. It says nothing of errors that other packages
// give for the same reason, such as lease.ErrInvalid.
package usererr
