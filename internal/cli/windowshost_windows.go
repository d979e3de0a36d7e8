package cli

import (
	"context"
	"fmt"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/remote"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32/native"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
)

const defaultKubeletDir = `C:\var\lib\kubelet`

// openWindowsHost prepares the way to this machine's disks. The proxy need not be
// there yet: until it is, the driver is not ready and says why.
func openWindowsHost(ctx context.Context, c driverConfig) (*windowsHost, error) {
	way := c.windowsHost
	if way == "" || way == windowsHostAuto {
		user, err := userOfProcess()
		if err != nil {
			return nil, err
		}
		way = automaticHost(user, hasRights())
	}
	c.logger.InfoContext(ctx, "reaching the disks of this node", "by", way)
	if way == windowsHostProxy {
		proxy, err := remote.Open(client.Options{})
		if err != nil {
			return nil, err
		}
		return &windowsHost{api: proxy.Host(), close: proxy.Close}, nil
	}
	rules, err := paths.New(c.kubeletDir)
	if err != nil {
		return nil, err
	}
	// With the state a format that dies with this process is finished by the next.
	machine, err := host.New(host.Options{
		Machine: native.New(native.Options{}), Rules: rules, RequirePrivacy: true, StateDir: host.StateDir, Logger: c.logger,
	})
	if err != nil {
		return nil, err
	}
	return &windowsHost{api: machine.API(), close: func() error { machine.Close(); return nil }}, nil
}

// userOfProcess is the SID of the user that this process runs as.
func userOfProcess() (string, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return "", fmt.Errorf("the user of this process: %w", err)
	}
	return user.User.Sid.String(), nil
}

// hasRights reports whether the service manager gives this process all rights, as
// it does to administrators.
func hasRights() bool {
	manager, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_ALL_ACCESS)
	if err != nil {
		return false
	}
	_ = windows.CloseServiceHandle(manager)
	return true
}
