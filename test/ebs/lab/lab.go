//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// Driver is the name of the plugin.
const Driver = "ebs.csi.aws.com"

// Options of a Lab.
type Options struct {
	// Holdfast and Emulator are the programs.
	Holdfast, Emulator string
	// Root is a directory for everything; it must exist and be empty.
	Root string
	// EmulatorFlags are further flags of the emulator, such as latencies.
	EmulatorFlags []string
	// Devices gives volumes data and loop devices.
	Devices bool
	// Instances of the emulated account; Pair() when nil.
	Instances []Instance
}

// Instance is a machine of the emulated account.
type Instance struct{ ID, Type, Zone string }

// Pair are two instances in one zone.
func Pair() []Instance {
	return []Instance{
		{ID: "i-0aaaaaaaaaaaaaaa1", Type: "m5.large", Zone: "us-west-2a"},
		{ID: "i-0bbbbbbbbbbbbbbb2", Type: "m5.large", Zone: "us-west-2a"},
	}
}

// Lab is an emulator and the drivers that were started with it.
type Lab struct {
	options  Options
	endpoint string // of EC2
	control  string // of the emulator's own API
	running  []*process
	clients  []*csiclient.Client
}

// Open starts the emulator.
func Open(ctx context.Context, o Options) (*Lab, error) {
	if o.Instances == nil {
		o.Instances = Pair()
	}
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	l := &Lab{options: o, endpoint: "http://" + ports[0], control: "http://" + ports[1]}
	arguments := []string{"--address=" + ports[0], "--control-address=" + ports[1], "--metadata-address="}
	for _, i := range o.Instances {
		arguments = append(arguments, fmt.Sprintf("--instance=%s=%s,%s", i.ID, i.Type, i.Zone))
	}
	if o.Devices {
		arguments = append(arguments, "--root="+filepath.Join(o.Root, "ec2"))
	}
	emulator, err := start(ctx, "ec2emu", o.Root, o.Emulator, os.Environ(), append(arguments, o.EmulatorFlags...)...)
	if err != nil {
		return nil, err
	}
	l.running = append(l.running, emulator)
	if err := emulator.await(ctx,
		func() bool { return answers(ctx, "tcp", ports[0]) && answers(ctx, "tcp", ports[1]) }); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// freePorts returns loopback addresses without a listener.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var addresses []string
	var config net.ListenConfig
	for range n {
		listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("a free port: %w", err)
		}
		addresses = append(addresses, listener.Addr().String())
		defer func() { _ = listener.Close() }()
	}
	return addresses, nil
}

func answers(ctx context.Context, network, address string) bool {
	connection, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return false
	}
	return connection.Close() == nil
}

// Endpoint is the URL of the emulated EC2.
func (l *Lab) Endpoint() string { return l.endpoint }

// Root is the directory of everything.
func (l *Lab) Root() string { return l.options.Root }

// Control is the URL of the emulator's own API.
func (l *Lab) Control() string { return l.control }

// credentials are those with which the SDK signs; the emulator does not verify signatures.
func credentials() []string {
	return []string{"AWS_ACCESS_KEY_ID=AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY=example", "AWS_REGION=us-west-2"}
}

// Process is a driver that was started.
type Process struct {
	*process
	Client *csiclient.Client
	// Socket is the URL of its CSI socket; KubeletDir is where it mounts.
	Socket, KubeletDir string
}

// Kill ends the driver like a crash.
func (p *Process) Kill() { p.kill() }

// Resident is its memory in bytes, now and at its peak.
func (p *Process) Resident() (now, peak int64, err error) { return p.resident() }

// Controller starts a controller process; flags are appended to the Lab's own.
func (l *Lab) Controller(ctx context.Context, name string, flags ...string) (*Process, error) {
	return l.driver(ctx, name, "controller",
		append(os.Environ(), credentials()...), append(l.controllerFlags(), flags...))
}

// controllerFlags name the endpoint of EC2. An emulator whose transitions take no time does
// not lag either, so the flags shorten the driver's waits for EC2 and for further changes.
func (l *Lab) controllerFlags() []string {
	flags := []string{"--ec2-endpoint=" + l.endpoint}
	if slices.Contains(l.options.EmulatorFlags, "--times=instant") {
		flags = append(flags, "--ec2-first-look=5ms", "--ec2-lag=200ms", "--modify-volume-window=50ms")
	}
	return flags
}

// Node starts the node process of an instance. The process gets neither credentials nor
// the endpoint of EC2.
func (l *Lab) Node(ctx context.Context, i Instance, flags ...string) (*Process, error) {
	return l.driver(ctx, i.ID, "node", os.Environ(), append(l.nodeFlags(i), flags...))
}

// All starts one process with both halves.
func (l *Lab) All(ctx context.Context, i Instance, flags ...string) (*Process, error) {
	own := append(l.nodeFlags(i), l.controllerFlags()...)
	return l.driver(ctx, "all-"+i.ID, "all", append(os.Environ(), credentials()...), append(own, flags...))
}

// Reference starts the controller of the AWS EBS CSI driver, to measure it together with
// Holdfast's.
func (l *Lab) Reference(ctx context.Context, binary string) (*Process, error) {
	directory := filepath.Join(l.options.Root, "reference")
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return nil, err
	}
	environment := append(append(os.Environ(), credentials()...), "AWS_EC2_ENDPOINT="+l.endpoint,
		"AWS_EC2_METADATA_DISABLED=true")
	socket := filepath.Join(directory, "csi.sock")
	running, err := start(ctx, "reference", l.options.Root, binary, environment,
		"controller", "--endpoint=unix://"+socket, "--batching=true")
	if err == nil {
		running.rude = true
	}
	return l.serving(ctx, running, err, socket, directory)
}

// nodeFlags are the flags for a node process with the paths of its instance's devices.
func (l *Lab) nodeFlags(i Instance) []string {
	machine := filepath.Join(l.options.Root, "ec2", "instances", i.ID)
	return []string{
		"--node-id=" + i.ID, "--instance-type=" + i.Type, "--zone=" + i.Zone,
		"--sys-root=" + filepath.Join(machine, "sys"), "--dev-root=" + filepath.Join(machine, "dev"),
	}
}

func (l *Lab) driver(ctx context.Context, name, mode string, environment, flags []string) (*Process, error) {
	return l.Launch(ctx, Launch{Name: name, Mode: []string{mode}, Environment: environment, Flags: flags})
}

// serving waits until a driver that was started answers on its socket.
func (l *Lab) serving(ctx context.Context, running *process, err error, socket, kubelet string) (*Process, error) {
	if err != nil {
		return nil, err
	}
	l.running = append(l.running, running)
	err = running.await(ctx, func() bool { return answers(ctx, "unix", socket) })
	if err != nil {
		return nil, err
	}
	client, err := csiclient.Dial("unix://"+socket,
		csiclient.Options{Driver: Driver, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	l.clients = append(l.clients, client)
	return &Process{process: running, Client: client, Socket: "unix://" + socket, KubeletDir: kubelet}, nil
}

// Close ends everything, the emulator last: its devices are free by then.
func (l *Lab) Close() error {
	var failed error
	for _, client := range l.clients {
		failed = errors.Join(failed, client.Close())
	}
	for i := len(l.running) - 1; i >= 0; i-- {
		if l.running[i].killed() {
			continue
		}
		failed = errors.Join(failed, l.running[i].stop())
	}
	l.clients, l.running = nil, nil
	return failed
}
