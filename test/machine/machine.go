package machine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/test/machine/disk"
)

// Options say what a machine is made of.
type Options struct {
	// Image is a directory that the script image made.
	Image string
	// Directory gets the disks, sockets and logs. Its path must be short: a socket
	// has room for 107 bytes.
	Directory string
	// Files are programs that the root disk gets: the path on the machine, and that
	// here.
	Files map[string]string
	// Arguments are added to the kernel's command line.
	Arguments []string
	// Memory is its size in MiB; 0 means 1536.
	Memory int
	// Programs is the file of a disk, /dev/vdc, that the machine can read; it may be "".
	Programs string
}

// Network is a tap device that a machine gets as eth0.
type Network struct {
	// Namespace is the path of the network namespace that has the device Tap.
	Namespace, Tap string
	// HardwareAddress is that of eth0.
	HardwareAddress string
}

// Machine is a machine that is on or off. Its methods are for one goroutine.
type Machine struct {
	options Options
	// data is the disk of /var/lib/holdfast, whose cache a power cut empties.
	data *disk.Disk
	// serving ends the disk's server.
	serving context.CancelFunc
	served  chan error
	// network is nil without one.
	network *Network
	// power is the running emulator, nil when the machine is off.
	power *emulator
	// Boots counts the starts.
	Boots int
}

// dataSize is the size of the disk of /var/lib/holdfast, in bytes.
const dataSize = 16 << 30

// New makes a machine's disks. The machine is off.
func New(ctx context.Context, options Options) (*Machine, error) {
	m := &Machine{options: options, served: make(chan error, 1)}
	if err := m.makeRoot(ctx); err != nil {
		return nil, err
	}
	if err := m.makeData(ctx); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", m.path("disk"))
	if err != nil {
		return nil, errors.Join(err, m.data.Close())
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.serving = cancel
	go func() { m.served <- m.data.Serve(serving, listener) }()
	return m, nil
}

func (m *Machine) path(name string) string { return filepath.Join(m.options.Directory, name) }

// Console is the path of the file with what the machine wrote to its serial console.
func (m *Machine) Console() string { return m.path("console") }

// Disk is the disk of /var/lib/holdfast.
func (m *Machine) Disk() *disk.Disk { return m.data }

// makeRoot copies the root disk and puts the files in.
func (m *Machine) makeRoot(ctx context.Context) error {
	if err := output(ctx, "cp", "--sparse=always", filepath.Join(m.options.Image, "root"), m.path("root")); err != nil {
		return err
	}
	var script strings.Builder
	for to, from := range m.options.Files {
		fmt.Fprintf(&script, "cd %s\nwrite %s %s\nset_inode_field %s mode 0100755\n",
			filepath.Dir(to), from, filepath.Base(to), filepath.Base(to))
	}
	commands := m.path("files")
	if err := os.WriteFile(commands, []byte(script.String()), 0o600); err != nil {
		return err
	}
	return output(ctx, "debugfs", "-w", "-f", commands, m.path("root"))
}

func (m *Machine) makeData(ctx context.Context) error {
	empty := m.path("formatted")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(empty, dataSize); err != nil {
		return err
	}
	// Discards would write zeros, slowly.
	if err := output(ctx, "mkfs.xfs", "-q", "-K", "-L", "holdfast", empty); err != nil {
		return err
	}
	var err error
	m.data, err = disk.Create(m.options.Directory, empty)
	return err
}

// Connect gives the machine a network from its next boot on.
func (m *Machine) Connect(n Network) { m.network = &n }

// Boot starts the machine and returns when its agent answers, which is before
// systemd has started everything.
func (m *Machine) Boot(ctx context.Context) error {
	if m.power != nil {
		return errors.New("boot: the machine is on")
	}
	m.Boots++
	power, err := m.start(ctx)
	if err != nil {
		return fmt.Errorf("boot %d: %w; the console is %s", m.Boots, err, m.Console())
	}
	m.power = power
	return nil
}

// Up waits until systemd has started what the machine starts, and returns an error
// if a unit failed.
func (m *Machine) Up(ctx context.Context) error {
	result, err := m.Run(ctx, "systemctl", "is-system-running", "--wait")
	if err != nil {
		return err
	}
	if state := strings.TrimSpace(result.Stdout); state != "running" {
		failed, err := m.Run(ctx, "systemctl", "--failed", "--no-legend", "--plain")
		return errors.Join(fmt.Errorf("the machine is %s: %s", state, failed.Stdout), err)
	}
	return nil
}

// Kill kills the emulator. CutPower must follow; until then the machine can be asked
// what it reported.
func (m *Machine) Kill() {
	if m.power != nil {
		m.power.kill()
	}
}

// CutPower kills the emulator and empties the disk's cache: each write in it is
// kept with a probability. The machine is off then.
func (m *Machine) CutPower(random *rand.Rand, keep float64) (disk.Loss, error) {
	if m.power == nil {
		return disk.Loss{}, errors.New("cut the power: the machine is off")
	}
	m.power.kill()
	m.power = nil
	return m.data.CutPower(random, keep)
}

// Off waits until the machine has turned itself off, as a machine that reboots does
// too. Writes that were not flushed are then lost as in a power cut: a shutdown
// must flush all that matters.
func (m *Machine) Off(ctx context.Context) (disk.Loss, error) {
	if m.power == nil {
		return disk.Loss{}, errors.New("wait for the end: the machine is off")
	}
	if err := m.power.wait(ctx); err != nil {
		return disk.Loss{}, err
	}
	m.power = nil
	return m.data.CutPower(rand.New(rand.NewPCG(0, 0)), 0) //nolint:gosec // no write is kept, so nothing is random
}

// AwaitOff returns when the machine has turned itself off. Off must follow.
func (m *Machine) AwaitOff(ctx context.Context) error {
	if m.power == nil {
		return errOff
	}
	return m.power.wait(ctx)
}

// Close turns the machine off and ends its disk.
func (m *Machine) Close() error {
	if m.power != nil {
		m.power.kill()
		m.power = nil
	}
	m.serving()
	return errors.Join(<-m.served, m.data.Close())
}

// output runs a program of this machine, whose output is part of an error.
func output(ctx context.Context, name string, arguments ...string) error {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, text)
	}
	return nil
}

// Image builds the image of a Debian release and a variant if it is not there, and
// returns its directory. The working directory must be test/machine.
func Image(ctx context.Context, suite, variant string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	command := exec.CommandContext(ctx, "./image", suite, variant)
	command.Stderr = os.Stderr
	path, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return strings.TrimSpace(string(path)), nil
}
