//go:build wine && linux

package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/test/ebs/lab"
)

// startTime is how long a program under wine may take until it serves.
const startTime = time.Minute

// stopTime is how long one has after SIGTERM.
const stopTime = 20 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// built returns a program: the one that a variable of the environment names, or one
// that is built as a user would.
func built(t *testing.T, system, directory, variable string) string {
	t.Helper()
	if path := os.Getenv(variable); variable != "" && path != "" {
		path, err := filepath.Abs(path)
		must(t, err)
		return path
	}
	path := filepath.Join(t.TempDir(), filepath.Base(directory))
	if system == "windows" {
		path += ".exe"
	}
	command := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/holdfast-csi/holdfast/"+directory)
	command.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", directory, err, output)
	}
	return path
}

// freeAddress is one of the loopback that is free now.
func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// program is one that runs under wine.
type program struct {
	t       *testing.T
	name    string
	command *exec.Cmd
	log     string
	ended   chan struct{}
}

// inTree returns the path of a file of the repository. go test runs a test in the directory
// of its package.
func inTree(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", name))
	must(t, err)
	return path
}

// startUnderWine runs a program until the test ends.
func startUnderWine(t *testing.T, name, path string, arguments ...string) *program {
	t.Helper()
	run := inTree(t, "test/windows/wine/run.sh")
	p := &program{t: t, name: name, log: filepath.Join(t.TempDir(), name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	must(t, err)
	p.command = exec.Command(run, append([]string{path}, arguments...)...)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, p.command.Start())
	go func() {
		_ = p.command.Wait() // wine ends by the signal, with any exit code of the program
		_ = log.Close()
		close(p.ended)
	}()
	t.Cleanup(p.stop)
	return p
}

func (p *program) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTime):
		_ = p.command.Process.Kill()
		<-p.ended
	}
	if p.t.Failed() {
		p.t.Logf("the end of the log of %s:\n%s", p.name, p.tail())
	}
}

func (p *program) content() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

func (p *program) tail() string {
	const most = 4000
	content := p.content()
	return content[max(0, len(content)-most):]
}

// serving waits until a process listens at an address.
func (p *program) serving(address string) *program {
	p.t.Helper()
	for deadline := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
			return p
		}
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended; its log: %s", p.name, p.tail())
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not serve %s; its log: %s", p.name, address, p.tail())
		}
	}
}

// control is the simulated machine behind the proxy.
type control struct {
	t       *testing.T
	address string
}

// call does a request and decodes the answer, which is an error beyond 200.
func (c control) call(method, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, content)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}

// state is the part of the machine's state that the tests inspect.
type state struct {
	Disks []struct {
		Number   uint32
		Serial   string
		Size     int64
		Online   bool
		IsSystem bool
	}
	Handles int
	Losses  []string
}

func (c control) state() (s state, err error) {
	err = c.call(http.MethodGet, "/state", nil, &s)
	return s, err
}

// serialOf is the serial number that Windows shows of an EBS volume (NVMe).
func serialOf(volumeID string) string {
	return strings.Replace(volumeID, "-", "", 1) + "_00000001."
}

// disk finds a volume's disk.
func (c control) disk(volumeID string) (number uint32, found bool, err error) {
	s, err := c.state()
	if err != nil {
		return 0, false, err
	}
	for _, disk := range s.Disks {
		if strings.TrimSpace(disk.Serial) == serialOf(volumeID) {
			return disk.Number, true, nil
		}
	}
	return 0, false, nil
}

// attach shows a disk as Windows does that has just been attached: offline and
// read-only by the SAN policy.
func (c control) attach(volumeID string, size int64) error {
	if _, found, err := c.disk(volumeID); found || err != nil {
		return err
	}
	return c.call(http.MethodPost, "/disks", map[string]any{
		"serial": serialOf(volumeID), "size": size, "offline": true, "readOnly": true,
	}, nil)
}

func (c control) detach(volumeID string) error {
	number, found, err := c.disk(volumeID)
	if !found || err != nil {
		return err
	}
	return c.call(http.MethodDelete, fmt.Sprintf("/disks/%d", number), nil, nil)
}

func (c control) grow(volumeID string, size int64) error {
	number, found, err := c.disk(volumeID)
	if !found || err != nil {
		return err
	}
	return c.call(http.MethodPost, fmt.Sprintf("/disks/%d/grow", number), map[string]any{"size": size}, nil)
}

// world is all that runs.
type world struct {
	*lab.Lab
	proxy, driver *program
	// address is of the node half; controllerSocket of the controller that also
	// sees to the machine's disks.
	address, controllerSocket string
	machine                   control
}

// open starts everything.
func open(t *testing.T) *world {
	t.Helper()
	l, err := lab.Open(t.Context(), lab.Options{
		Holdfast: built(t, "linux", "cmd/holdfast", ""), Emulator: built(t, "linux", "cmd/ec2emu", ""), Root: t.TempDir(),
		EmulatorFlags: []string{"--times=instant", "--latency=0s"},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	controller, err := l.Controller(t.Context(), "controller")
	must(t, err)
	w := &world{Lab: l, machine: control{t: t, address: freeAddress(t)}, address: freeAddress(t)}
	w.startProxy(t)
	must(t, w.machine.call(http.MethodPost, "/files", map[string]any{"path": kubeletDir, "kind": "directory"}, nil))
	w.startDriver(t)
	w.controllerSocket = attaching(t, controller.Socket, w.machine)
	return w
}

// startProxy starts csi-proxy.exe; a new one has a new machine.
func (w *world) startProxy(t *testing.T) {
	t.Helper()
	proxy := built(t, "windows", "simulation/windows/cmd/csi-proxy-simulated", "HOLDFAST_CSI_PROXY_SIMULATED")
	w.proxy = startUnderWine(t, "csi-proxy", proxy, "run", "--simulated-control="+w.machine.address,
		"--kubelet-path="+kubeletDir, "--log-level=debug").serving(w.machine.address)
}

func (w *world) startDriver(t *testing.T) {
	t.Helper()
	instance := lab.Pair()[0]
	driver := built(t, "windows", "cmd/holdfast", "HOLDFAST_NODE_EXE")
	w.driver = startUnderWine(t, "holdfast", driver, "driver", "node", "--backend=ebs", "--windows-host=proxy",
		"--endpoint=tcp://"+w.address, "--kubelet-dir="+kubeletDir, "--log-level=debug",
		"--node-id="+instance.ID, "--instance-type="+instance.Type, "--zone="+instance.Zone, "--device-wait=5s").serving(w.address)
}
