// Package history is the record of everything that changed hands: one [Event]
// for each acquisition, release and request, written by the very statement that
// made the change, so that neither can be without the other.
//
// It is the audit log, the dashboard's feed, and the first thing to read in an
// incident. It promises that an event that was read once stays as it is until it
// is trimmed, and that a [Feed] sees every event at least once in the life of
// its cursor. Ids grow with time but are not dense, and on PostgreSQL an event
// may become visible after one with a higher id; [Feed] allows for that, and for a
// store that fails over to a copy that lacks the latest events, and gives their ids again.
package history
