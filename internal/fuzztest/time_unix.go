//go:build unix

package fuzztest

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the time of the processors that the process has used (getrusage(2)).
func processTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
