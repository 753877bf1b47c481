// Package disk stores a peer's copies and its durable state in an SQLite
// file: cache.db in a directory of the peer's own.
//
// # What it promises
//
//   - The directory (mode 0700) and the file (mode 0600) are created on first use. One
//     process uses them at a time; a second one is refused with [ErrInUse]
//     until the first has ended, however it ended.
//   - A Save is one transaction, however many records it has: all or nothing. It survives
//     the process. It is not synced to the disk at once (synchronous=NORMAL):
//     a crash of the machine may lose the last saves, in order.
//   - The ceiling of terms, the removals and the members are synced before the
//     call returns (synchronous=FULL), and with them every save before. The ceiling
//     never falls.
//   - Load returns records in the order in which they were last saved, which is not the
//     order of last use: a copy that was fetched long ago and is used all the time
//     comes early.
//   - A value whose digest does not match was damaged on the disk. Load leaves it out,
//     deletes it and logs how many there were: a cache may forget, but must
//     not lie.
//
// # What it does not promise
//
//   - That the file shrinks. Space of deleted rows is used again.
//   - Several processes, or a directory on a network file system: the lock and
//     SQLite's shared memory hold within one kernel. On systems without flock
//     (other than Linux, macOS and the BSDs) a second process is not refused.
//   - Anything when a peer starts with an older copy of the file, for instance from a
//     backup: its ceiling has fallen.
//
// # How it fails
//
// A full disk and errors of the disk are returned. After an error of
// Save, all or (more often) nothing of it was saved; Save again. It recovers when
// there is space again. A disk that failed to sync cannot be
// trusted afterwards: if a restart does not help, replace it. When the file is removed
// or replaced while it is in use, every write fails until a restart.
//
// A damaged file, or a file of another program, is [ErrFile]. [Repair] sets a damaged one aside, and makes a new one with
// what must not be forgotten, as far as it can be read: the ceiling of terms, the removals and the members. Copies come
// from the other peers. Where the ceiling cannot be read, the peer starts as one whose storage was lost: the others
// notice, and it waits until nothing can rest on what it has forgotten.
package disk
