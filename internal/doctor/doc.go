// Package doctor examines a store, the parts that it keeps and the servers on it, and tells what would happen at a
// crash.
//
// It promises that every finding that is not well says what to do about it, or where that is explained; that what
// cannot be looked at is a finding of its own, and hides no other; and that it changes nothing: the session with which
// it measures is ended again. It does not print, and fixes nothing. How something is now says little of how it was a
// minute ago.
package doctor
