//go:build nvme

package nvme

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// monitor is QEMU's monitor, with its protocol (QMP) through a port of this machine. The
// tests use it one after another.
type monitor struct {
	port    *os.File
	decoder *json.Decoder
	events  []event
}

type event struct {
	Event string         `json:"event"`
	Data  map[string]any `json:"data"`
}

type message struct {
	event
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

var qemu *monitor

func TestMain(m *testing.M) {
	var err error
	if qemu, err = openMonitor(); err != nil {
		fmt.Fprintln(os.Stderr, "this needs the machine of test/nvme/run (make test-nvme):", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func openMonitor() (*monitor, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no virtio port: %w", os.ErrNotExist)
	}
	port, err := os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(names[0]))), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	q := &monitor{port: port, decoder: json.NewDecoder(port)}
	var greeting map[string]any
	if err := q.decoder.Decode(&greeting); err != nil || greeting["QMP"] == nil {
		return nil, fmt.Errorf("no greeting of QEMU but %v: %w", greeting, err)
	}
	return q, q.do("qmp_capabilities", nil)
}

func (q *monitor) do(command string, arguments map[string]any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := q.port.Write(append(text, '\n')); err != nil {
		return err
	}
	for {
		var m message
		if err := q.decoder.Decode(&m); err != nil {
			return err
		}
		switch {
		case m.Error != nil:
			return fmt.Errorf("%s: %s", command, m.Error.Desc)
		case m.Event != "":
			q.events = append(q.events, m.event)
		default:
			return nil
		}
	}
}

// await reads events until one has the name and the device.
func (q *monitor) await(name, device string) error {
	for {
		for i, e := range q.events {
			if e.Event == name && e.Data["device"] == device {
				q.events = append(q.events[:i], q.events[i+1:]...)
				return nil
			}
		}
		var m message
		if err := q.decoder.Decode(&m); err != nil {
			return err
		}
		q.events = append(q.events, m.event)
	}
}

// emulated is the model number of QEMU's disks.
const emulated = "QEMU NVMe Ctrl"

// plug attaches one of the machine's disks (0 to 3) to a port of the same number, as the
// volume. The disk keeps its data.
func plug(t *testing.T, disk int, volume string) {
	t.Helper()
	must(t, qemu.do("device_add", map[string]any{
		"driver": "nvme", "id": name(disk), "drive": fmt.Sprintf("disk%d", disk), "bus": fmt.Sprintf("port%d", disk),
		"serial": strings.Replace(volume, "-", "", 1),
	}))
	t.Cleanup(func() { unplug(t, disk) })
}

func name(disk int) string { return fmt.Sprintf("nvme%d", disk) }

// unplug detaches a disk; it may be repeated.
func unplug(t *testing.T, disk int) {
	t.Helper()
	before := nvmeDisks(t)
	for try := 0; ; try++ {
		err := qemu.do("device_del", map[string]any{"id": name(disk)})
		if err != nil && strings.Contains(err.Error(), "not found") {
			return
		}
		if err == nil {
			break
		}
		if try == 100 { // the slot may still be busy with what came before
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	must(t, qemu.await("DEVICE_DELETED", name(disk)))
	eventually(t, "the disk goes away", func() bool { return len(nvmeDisks(t)) < len(before) || len(before) == 0 })
}

// nvmeDisks lists the disks that the kernel has now, without the hidden paths
// of those that it could reach over several (nvme0c0n1).
func nvmeDisks(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/sys/block/nvme*n1")
	must(t, err)
	return slices.DeleteFunc(found, func(path string) bool { return strings.Contains(filepath.Base(path), "c") })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 300 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("waited 30 s: %s", what)
}
