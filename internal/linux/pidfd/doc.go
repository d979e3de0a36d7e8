// Package pidfd waits for processes and signals them by pidfd (pidfd_open(2)): a
// process ID is reused, a pidfd is not. A process that is recorded on disk is known
// by its process ID, its start time and the boot.
package pidfd
