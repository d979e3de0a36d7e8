package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// machine gives the calls of the machine that is worked on, and the site that
// controls a simulated one.
func (c *config) machine(ctx context.Context, log *slog.Logger) (win32.Machine, []*site, error) {
	if c.host == hostNative {
		machine, err := nativeMachine()
		if err != nil {
			return win32.Machine{}, nil, fmt.Errorf("this machine's storage: %w", err)
		}
		return machine, nil, nil
	}
	log.Warn("the machine is SIMULATED: no disk, share or directory of this one is touched", "control", c.simulatedControl)
	machine := windows.New(windows.Options{BIOSSerial: "SIMULATED-0001"})
	if c.simulatedControl == "" {
		return machine.Calls(), nil, nil
	}
	control, err := open(ctx, "--simulated-control", c.simulatedControl, map[string]http.Handler{"/": windows.Control(machine)}, log)
	if err != nil {
		return win32.Machine{}, nil, err
	}
	return machine.Calls(), []*site{control}, nil
}
