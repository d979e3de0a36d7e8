package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// TestRefuseUsed_aHungDeviceKeepsNoProgramFromStarting: an open waits for a device that does
// not answer, and other volumes need mkfs and fsck meanwhile.
func TestRefuseUsed_aHungDeviceKeepsNoProgramFromStarting(t *testing.T) {
	hung := filepath.Join(t.TempDir(), "fifo") // its open waits for a writer
	if err := syscall.Mkfifo(hung, 0o600); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		answered <- (&Engine{}).refuseUsed(preparation{volumeID: "v", device: &backend.Device{Path: hung}})
	}()
	started := make(chan error, 1)
	go func() {
		for range 50 { // more than the time until the device is opened
			if err := exec.Command("true").Run(); err != nil {
				started <- err
				return
			}
		}
		started <- nil
	}()
	select {
	case err := <-started:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("no program starts while a device hangs")
	}
	writer, err := os.OpenFile(hung, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}
