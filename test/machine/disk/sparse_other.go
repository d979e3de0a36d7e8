//go:build !linux

package disk

import "os"

// nextData returns from: where holes cannot be found, everything may have data.
func nextData(_ *os.File, from int64) (int64, error) { return from, nil }
