package machine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// emulator is a QEMU process and the connection to the agent in its machine.
type emulator struct {
	command *exec.Cmd
	ended   chan struct{}
	agent   *agent
}

// start runs QEMU and returns when the machine's agent has said hello.
func (m *Machine) start(ctx context.Context) (*emulator, error) {
	_ = os.Remove(m.path("agent"))
	log, err := os.OpenFile(m.path("qemu.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	e := &emulator{ended: make(chan struct{})}
	// Not CommandContext: the context is of the boot, and the machine outlives it.
	command := m.command()
	e.command = exec.Command(command[0], command[1:]...) //nolint:noctx // as said
	e.command.Stdout, e.command.Stderr = log, log
	if err := e.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = e.command.Wait()
		close(e.ended)
	}()
	if e.agent, err = e.greet(ctx, m.path("agent")); err != nil {
		e.kill()
		return nil, err
	}
	return e, nil
}

// command is QEMU's, in the namespace of the machine's network.
func (m *Machine) command() []string {
	command := append([]string{"qemu-system-x86_64"}, m.arguments()...)
	if m.options.Programs != "" {
		command = append(command,
			"-blockdev", "driver=raw,node-name=programs,read-only=on,file.driver=file,file.filename="+m.options.Programs,
			"-device", "virtio-blk-pci,drive=programs,addr=0xa")
	}
	if m.network == nil {
		return command
	}
	command = append(command, "-netdev", "tap,id=network,script=no,downscript=no,ifname="+m.network.Tap,
		"-device", "virtio-net-pci,netdev=network,addr=0xb,mac="+m.network.HardwareAddress)
	return append([]string{"nsenter", "--net=" + m.network.Namespace, "--"}, command...)
}

func (m *Machine) arguments() []string {
	image := func(name string) string { return filepath.Join(m.options.Image, name) }
	kernel := []string{"console=ttyS0", "panic=-1", "mitigations=off", "nokaslr", "cryptomgr.notests", "quiet", "net.ifnames=0"}
	return []string{
		"-nodefaults", "-no-reboot", "-display", "none", "-machine", "q35", "-accel", Acceleration(), "-cpu", processor(),
		"-smp", "2", "-m", strconv.Itoa(cmp.Or(m.options.Memory, 1536)), "-device", "virtio-rng-pci",
		"-chardev", "file,id=console,append=on,path=" + m.Console(), "-serial", "chardev:console",
		"-chardev", "socket,id=agent,server=on,wait=off,path=" + m.path("agent"),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=agent",
		// Their order on the bus makes them vda and vdb.
		"-blockdev", "driver=raw,node-name=root,cache.no-flush=on,file.driver=file,file.cache.no-flush=on,file.filename=" + m.path("root"),
		"-device", "virtio-blk-pci,drive=root,addr=0x8,discard=off",
		// The disk has a cache; so the kernel flushes it.
		"-blockdev", "driver=nbd,node-name=data,server.type=unix,server.path=" + m.path("disk") + ",cache.direct=on,cache.no-flush=off",
		"-device", "virtio-blk-pci,drive=data,addr=0x9,write-cache=on,discard=off,write-zeroes=off",
		"-kernel", image("kernel"), "-initrd", image("initramfs"),
		"-append", strings.Join(append(kernel, m.options.Arguments...), " "),
	}
}

// Acceleration is KVM where the processor has what it needs, and QEMU's own
// emulation elsewhere; ACCEL in the environment is another. That /dev/kvm opens is
// not enough: some have a processor that cannot run an ordinary kernel with it.
func Acceleration() string {
	if given := os.Getenv("ACCEL"); given != "" {
		return given
	}
	facts, err := os.ReadFile("/proc/cpuinfo")
	if err == nil && (bytes.Contains(facts, []byte(" vmx")) || bytes.Contains(facts, []byte(" svm"))) {
		if device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
			_ = device.Close()
			return "kvm"
		}
	}
	return "tcg,thread=multi"
}

// processor is an old one when it is emulated: for each feature of a newer one,
// udev loads modules of the kernel, which takes most of a minute.
func processor() string {
	if Acceleration() == "kvm" {
		return "host"
	}
	return "Nehalem"
}

// greet connects to the agent's port and waits for its hello.
func (e *emulator) greet(ctx context.Context, socket string) (*agent, error) {
	connection, err := e.dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	a := newAgent(connection)
	select {
	case <-a.hello:
		return a, nil
	case <-e.ended:
		return nil, errors.New("the emulator ended before the agent answered")
	case <-ctx.Done():
		return nil, fmt.Errorf("the agent did not answer: %w", ctx.Err())
	}
}

// dial tries until the emulator listens.
func (e *emulator) dial(ctx context.Context, socket string) (net.Conn, error) {
	for {
		connection, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return connection, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-e.ended:
			return nil, fmt.Errorf("the emulator ended with %s", e.command.ProcessState)
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// kill ends the emulator and waits for it: it holds locks on its disks until then.
func (e *emulator) kill() {
	_ = e.command.Process.Kill()
	<-e.ended
	if e.agent != nil {
		<-e.agent.gone // its last messages are read
		e.agent.close()
	}
}

// wait returns when the emulator has ended by itself.
func (e *emulator) wait(ctx context.Context) error {
	select {
	case <-e.ended:
	case <-ctx.Done():
		return fmt.Errorf("the machine did not turn itself off: %w", ctx.Err())
	}
	<-e.agent.gone
	e.agent.close()
	if code := e.command.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the emulator ended with %s", e.command.ProcessState)
	}
	return nil
}
