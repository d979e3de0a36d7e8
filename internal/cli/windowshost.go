package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/node/windows"
)

const onWindows = runtime.GOOS == "windows"

// The ways of a Windows node to its disks.
const (
	// windowsHostProxy uses csi-proxy's pipe, from a container.
	windowsHostProxy = "proxy"
	// windowsHostNative does in this process what csi-proxy does: in a HostProcess
	// container, or as a process of the host.
	windowsHostNative = "native"
	// windowsHostAuto is native where this process has the rights for it.
	windowsHostAuto = "auto"
)

func windowsHosts() []string { return []string{windowsHostAuto, windowsHostProxy, windowsHostNative} }

func (f *driverFlags) checkWindowsHost(flags *pflag.FlagSet) error {
	switch {
	case !slices.Contains(windowsHosts(), f.windowsHost):
		return usageErrorf("--windows-host: %q is none of %s", f.windowsHost, strings.Join(windowsHosts(), ", "))
	case !onWindows && flags.Changed("windows-host"):
		return usageErrorf("--windows-host: this is not a Windows node")
	}
	return nil
}

// windowsHost is a Windows machine and the connections to close with it.
type windowsHost struct {
	api   api.Host
	close func() error
}

func (d *driverProcess) newWindowsEngine(ctx context.Context, traits backend.Traits) (engine, error) {
	host, err := openWindowsHost(ctx, d.config)
	if err != nil {
		return nil, fmt.Errorf("the disks of this node: %w", err)
	}
	d.host = host
	return windows.New(windows.Options{
		Host: host.api, Backend: d.backend.windows, KubeletDir: d.config.kubeletDir,
		Driver: cmp.Or(d.config.name, traits.DriverName),
		Logger: d.config.logger, Failpoints: d.config.points, Wait: d.config.ebs.deviceWait,
	})
}

func (d *driverProcess) closeHost() error {
	if d.host == nil {
		return nil
	}
	if err := d.host.close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close the way to this node's disks: %w", err)
	}
	return nil
}

// containerUsers begins the SIDs of ContainerAdministrator and ContainerUser.
const containerUsers = "S-1-5-93-"

// automaticHost is native if this process is an administrator of the host itself. An
// isolated container has its own service manager and its own administrator, without
// rights on the host's disks.
func automaticHost(user string, rights bool) string {
	if rights && !strings.HasPrefix(user, containerUsers) {
		return windowsHostNative
	}
	return windowsHostProxy
}
