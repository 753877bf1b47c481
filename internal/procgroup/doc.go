// Package procgroup starts a program in a process group of its own and kills it
// with what it has started, as long as that stays in the group. On Linux the
// program dies with its parent, too; where there are no groups it is killed alone.
//
// What the program has written is read, however long this process was kept from
// reading; what holds the output open after the program's end is waited for for a
// moment only.
package procgroup
