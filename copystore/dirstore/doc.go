// Package dirstore keeps durable copies in a directory, which may be shared by
// the replicas of one host or lie on a network file system that has hard links.
//
// An object is a file of its name below the root. It is written to a temporary
// file under ".tmp" in the root and fsynced; a hard link gives it its name, which
// fails if the name is taken; then the directory that got the link is fsynced,
// and so is every directory above it, up to one that this store has already made
// durable. Only then does the object count. Renaming would replace an object that
// exists, and checking first would leave a gap in which two processes both find the
// name free.
//
// # What to know before deploying
//
// The root must be one file system: a mount point below it would keep links from
// being made. A file system without hard links is refused when the store is
// opened. Files are made with mode 0600 and directories with 0700, so replicas
// that share a root run as one user.
//
// File operations of the operating system cannot be interrupted: a context
// ends a call between two blocks of a transfer, but a network file system
// that hangs in a system call is waited for.
package dirstore
