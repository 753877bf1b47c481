//go:build !linux

package sqlite

// writesTo reports nothing: here watchers poll.
func writesTo(string) (written <-chan struct{}, stop func()) { return nil, func() {} }
