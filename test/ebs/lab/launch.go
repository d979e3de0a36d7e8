//go:build linux

package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Launch configures a driver that is not started in the usual way.
type Launch struct {
	// Name of its directory and log.
	Name string
	// Mode is the argument before the flags: one word, or none.
	Mode []string
	// Environment is the whole environment of the process.
	Environment []string
	// Flags are added to those of the backend, the socket and the kubelet's directory.
	Flags []string
	// User is the user and group ID of the process; 0 is root.
	User uint32
	// Offline runs it without a network, even without a loopback.
	Offline bool
}

// Launch starts a driver and waits until it serves.
func (l *Lab) Launch(ctx context.Context, o Launch) (*Process, error) {
	directory := filepath.Join(l.options.Root, o.Name)
	kubelet := filepath.Join(directory, "kubelet")
	err := os.MkdirAll(kubelet, 0o750)
	if o.User != 0 {
		err = errors.Join(err, os.Chown(directory, int(o.User), int(o.User)),
			os.Chown(kubelet, int(o.User), int(o.User)))
	}
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(directory, "csi.sock")
	arguments := append(append([]string{"driver"}, o.Mode...), "--backend=ebs",
		"--endpoint=unix://"+socket, "--kubelet-dir="+kubelet)
	running, err := startIn(ctx, surroundings{o.User, o.Offline}, o.Name, l.options.Root, l.options.Holdfast,
		o.Environment, append(arguments, o.Flags...)...)
	return l.serving(ctx, running, err, socket, kubelet)
}

// ControllerEnvironment is the environment that a controller needs.
func (l *Lab) ControllerEnvironment() []string { return append(os.Environ(), credentials()...) }

// ControllerFlags are the flags for a controller with the address of EC2.
func (l *Lab) ControllerFlags() []string { return []string{"--ec2-endpoint=" + l.endpoint} }

// NodeFlags are the flags for a node process with its instance and the paths of its
// devices.
func (l *Lab) NodeFlags(i Instance) []string { return l.nodeFlags(i) }

// Log is the output of the process.
func (p *Process) Log() (string, error) {
	content, err := os.ReadFile(p.log.Name())
	return string(content), err
}

// PID is the number of the process.
func (p *Process) PID() int { return p.command.Process.Pid }
