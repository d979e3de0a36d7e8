package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/activation"
)

// pluginSocketName is FileDescriptorName= of the unit of the volume plugin's socket,
// deploy/systemd/holdfast-volume-plugin.socket.
const pluginSocketName = "volume-plugin"

// inheritedPlugin returns the listening socket of the volume plugin that systemd
// opened (sd_listen_fds(3)), nil if there is none. Connections wait in it while no host
// runs. path is that of the flag, empty without one.
func inheritedPlugin(path string) (net.Listener, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil
	}
	for _, f := range files {
		defer func() { _ = f.Close() }() // the listener has a duplicate
	}
	if name := files[0].Name(); len(files) > 1 || name != pluginSocketName {
		return nil, fmt.Errorf("systemd passed %d sockets, the first with the name %q: the host takes one with the name %q; "+
			"set FileDescriptorName=%[3]s in its unit and remove others", len(files), name, pluginSocketName)
	}
	listener, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf("the socket %s of systemd: %w", pluginSocketName, err)
	}
	if err := checkPlugin(listener.Addr(), path); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("the socket %s of systemd, %s: %w", pluginSocketName, listener.Addr(), err)
	}
	return listener, nil
}

// checkPlugin refuses a socket that other users could reach: its clients can mount and
// delete every volume. It lets root alone connect.
func checkPlugin(address net.Addr, path string) error {
	file := address.String()
	if address.Network() != "unix" || !filepath.IsAbs(file) {
		return errors.New("it is not a file; set ListenStream= to a path")
	}
	if path != "" && filepath.Clean(path) != filepath.Clean(file) {
		return fmt.Errorf("--volume-plugin is another, %s; remove one of them", path)
	}
	return os.Chmod(file, 0o600)
}
