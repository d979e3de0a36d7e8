//go:build !linux

package store

import "os"

func holder(string) string { return "" }

// lock leaves it to bbolt: a host runs on Linux only.
func lock(*os.File, bool) error { return nil }

func unlock(*os.File) error { return nil }
