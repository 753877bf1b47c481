// Package instance has what all commands share that run an instance on a store: the store, opened patiently; the
// session that shows the instance to others; and the program that it runs while it holds a role.
//
// It promises that the program is dead before the role can be another's, and that the session is ended when the work
// is. A store that cannot be reached is waited for; one that refuses is an error at once. What the work is, and when
// the role is held, others say.
package instance
