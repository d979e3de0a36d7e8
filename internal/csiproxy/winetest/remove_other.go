//go:build !windows

package winetest

import "os"

func removeTree(path string) error { return os.RemoveAll(path) }
