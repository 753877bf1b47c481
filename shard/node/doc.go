// Package node starts and watches the process of a database node on this host, and runs a
// user's hooks.
//
// # What it promises
//
// A node that [Process] starts has a session of its own and outlives the agent: nothing
// that happens to the agent ends it. Its output goes to a file, never to a pipe that
// would break with the agent. An agent that is started again finds the node by the file
// node.pid in the data folder and adopts it: the process id counts only with
// the time at which that process was started and with the boot of the host, so that another process
// which has the number by now is left alone. There is no node without that file: a process that is to become
// the node waits until it is written, and ends if the agent does before. That process is the agent's own binary once
// more, so a program that starts nodes calls [Launch], as [LaunchArg] says, before it does anything else.
//
// The end of a process is told by the kernel (pidfd), also of one that is no child,
// at once and without asking again and again. When [Process.Done] is closed, the
// process has closed its files and connections. [Process.Kill] reaches exactly the process that was
// started or adopted, stopped or not.
//
// [Adopt] takes a process that someone else started only if that very process
// listens at the node's address in this network namespace. The number that a node tells of itself
// may be that of a container, where another process has it here. Nodes may share a port at several addresses of the host:
// for one that does not tell its number Adopt takes the one process that listens at the address, and none if
// several do. A process that must not be looked into, as one in a user namespace of its own, is taken if it runs as the
// user whose socket listens and its title names the port.
//
// # What it does not promise
//
// Processes that the node starts are not followed. The log is kept within its bound only while an
// agent runs, and what is written while it is being shortened may be lost.
//
// On systems without pidfd (Linux before 5.3, and others), processes are asked for ten times
// a second, and nothing is adopted. On systems that are not Unix nothing is started.
//
// # How it fails
//
// Errors of the file system are returned by Start as they are, and so is that there is no such program; one
// that cannot be executed ends at once, and node.log says why. A file node.pid that cannot be understood is an error as well: it may be all that is
// known of a node that runs. A hook that fails or takes too long is an error
// with the end of its output.
package node
