package nodestats

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The disk may send all that the command asks for.
func TestRead_hasRoomForAllThatIsAskedFor(t *testing.T) {
	if sent := (asked + 1) * 4; bufferSize < sent || bufferSize < pageSize {
		t.Errorf("a disk may send %d bytes into %d", sent, bufferSize)
	}
}

func TestRead_failsWithoutADisk(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := Read(file); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("a file answers %v", err)
	}
	if _, err := DeviceName(file); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("a file answers %v", err)
	}
}
