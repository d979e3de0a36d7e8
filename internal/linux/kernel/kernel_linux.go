// Package kernel reports which Linux runs.
package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AtLeast reports a Linux of this version or a later one, false if the version cannot be
// read. What distributions and stable releases took from later versions does not count.
func AtLeast(major, minor int) bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(name.Release[:]), major, minor)
}

func atLeast(release string, major, minor int) bool {
	var gotMajor, gotMinor int
	_, err := fmt.Sscanf(release, "%d.%d", &gotMajor, &gotMinor)
	return err == nil && (gotMajor > major || gotMajor == major && gotMinor >= minor)
}
