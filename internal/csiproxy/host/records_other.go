//go:build !windows

package host

import "os"

// makeRecordDir makes a directory for this user only; see records_windows.go.
func makeRecordDir(dir string) (open, err error) { return nil, os.MkdirAll(dir, 0o700) }
