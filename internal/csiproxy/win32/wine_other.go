//go:build !windows

package win32

// UnderWine reports whether this process runs under wine, which no program for
// another system does.
func UnderWine() bool { return false }
