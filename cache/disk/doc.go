// Package disk keeps a peer's copies, and what it must not forget, in an SQLite
// file: cache.db in a directory of the peer's own.
//
// # What it promises
//
//   - The directory (mode 0700) and the file (mode 0600) make themselves. One
//     process uses them at a time; a second one is refused with [ErrInUse], and
//     let in as soon as the first has ended, however it ended.
//   - A row holds a key's value and what belongs to it. A Save is one transaction,
//     however many records it has: all or nothing. What was saved survives the
//     process. It is not synced to the disk at once (synchronous=NORMAL), so that
//     a crash of the machine may lose the last saves, in order.
//   - The ceiling of terms, the removals and the members are synced before the
//     call returns (synchronous=FULL), and with them every save before. The ceiling
//     never falls.
//   - Load gives records in the order in which they were saved last. That is the
//     order of last use only as far as a use is followed by a save: a copy
//     that was fetched long ago and is used all the time comes early.
//   - A value whose digest does not fit was damaged on the disk. Load leaves it out,
//     deletes it and logs how many there were: a cache may forget, and must
//     not lie.
//
// # What it does not promise
//
//   - That the file shrinks. The room of what was deleted is used again.
//   - Several processes, or a directory on a network file system: the lock and
//     SQLite's shared memory hold within one kernel. On systems without flock
//     (other than Linux, macOS and the BSDs) nothing keeps a second process out.
//   - Anything when a peer starts with an older copy of the file, from a backup for
//     instance: its ceiling has fallen.
//
// # How it fails
//
// A full disk and errors of the disk come back as errors. After one from
// Save, all of it was saved or nothing, and nothing is the rule; Save again. When
// space returns, everything goes on. A disk that has refused to sync cannot be
// believed afterwards: if a restart does not help, replace it. When the file is removed
// or replaced while it is in use, every call that writes fails until a restart.
//
// A file that is damaged, or not of this package, is [ErrFile]. It is a cache: it may
// be moved away, with its -wal and -shm. The peer then starts empty, and it has
// forgotten its ceiling of terms, what it has removed and what it has promised
// about the membership. It abstains from voting for one announce timeout, as after
// every start, and learns the rest from the others. So do that to one peer at a
// time, while the others are up.
package disk
