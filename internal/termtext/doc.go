// Package termtext makes values fit for people to read: texts without what a terminal would obey, durations without
// figures that nobody needs, URLs without passwords.
//
// It promises that a text of anybody's, printed through Text or Line, moves no cursor and changes no colour. It does
// not promise that what it gives can be read back.
package termtext
