//go:build !unix

package fuzztest

import "time"

// processTime is not known here; only the limit by the clock remains.
func processTime() time.Duration { return 0 }
