package cli

import (
	"cmp"
	"os"
)

// The environment variables of commands that use a host; the flags win.
const (
	rootVariable   = "HOLDFAST_ROOT"
	socketVariable = "HOLDFAST_HOST"
)

// defaultRoot is the root directory of a host.
const defaultRoot = "/var/lib/holdfast"

// rootDefault is the default of --root.
func rootDefault() string { return cmp.Or(os.Getenv(rootVariable), defaultRoot) }
