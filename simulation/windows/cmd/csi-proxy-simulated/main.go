// Command csi-proxy-simulated is csi-proxy on a simulated machine, for tests and
// for authors of plugins: it serves the pipes of csi-proxy, has its flags and
// verbs, and touches no disk, share or directory of the machine that it runs on.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/cli"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// version is set by the linker (windows.mk).
var version = "devel"

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, version, (&simulated{}).machine(), os.Args[1:], os.Stdout, os.Stderr)
}

// controlFlag names the flag for the control of the simulated machine.
const controlFlag = "simulated-control"

// simulated is the simulated machine of the command line.
type simulated struct{ control string }

func (s *simulated) machine() cli.Machine {
	return cli.Machine{Flags: s.flags, Check: s.check, Open: s.open}
}

func (s *simulated) flags(flags *pflag.FlagSet) {
	flags.StringVar(&s.control, controlFlag, "",
		"`host:port` on a loopback address where tests control the simulated machine")
}

// check accepts only loopback addresses, because the control has no authentication.
func (s *simulated) check() error {
	if s.control == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(s.control)
	if err != nil {
		return fmt.Errorf("--%s: %w", controlFlag, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--%s: %q is not a loopback address, such as 127.0.0.1", controlFlag, host)
	}
	return nil
}

func (s *simulated) open(log *slog.Logger) (cli.Opened, error) {
	log.Warn("the machine is SIMULATED: no disk, share or directory of this one is touched", "control", s.control)
	machine := windows.New(windows.Options{BIOSSerial: "SIMULATED-0001"})
	opened := cli.Opened{Calls: machine.Calls(), Volatile: true}
	if s.control != "" {
		opened.Pages = []cli.Page{
			{Flag: "--" + controlFlag, Address: s.control, Handlers: map[string]http.Handler{"/": windows.Control(machine)}},
		}
	}
	return opened, nil
}
