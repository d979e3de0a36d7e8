//go:build !windows

package wine

// Running tells whether the process runs under wine: no program of this system does.
func Running() bool { return false }
