package cli

import (
	"log/slog"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Machine is the machine that a proxy works on: cmd/csi-proxy passes the one that it runs
// on, a program for tests a simulated one.
type Machine struct {
	// Flags adds the machine's own flags to those of run and install; nil adds none.
	Flags func(flags *pflag.FlagSet)
	// Check returns an error of usage for these flags; nil accepts all.
	Check func() error
	// Open makes the machine ready for calls.
	Open func(log *slog.Logger) (Opened, error)
}

// Opened is a machine that is ready for calls.
type Opened struct {
	Calls win32.Machine
	// Volatile means that the machine's state ends with the process: the proxy stores no
	// state about it.
	Volatile bool
	// Pages are served together with the pipes.
	Pages []Page
}

// Page is an address that answers HTTP.
type Page struct {
	Flag     string // of the address, for errors
	Address  string
	Handlers map[string]http.Handler // by pattern
}
