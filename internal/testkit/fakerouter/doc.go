// Package fakerouter is a Message Router for tests: strict where clients are wrong,
// and as bad as a real one where they must cope.
//
// Topics keep all that was ever published to them. Each group reads a topic once,
// from its beginning; its consumers share it. What was read counts as read as soon as
// the answer was written, as the real one has it. One consumer that polls from two
// places at once is refused with 409. Polls wait on the real clock.
package fakerouter
