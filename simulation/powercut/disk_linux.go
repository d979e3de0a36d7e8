package powercut

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

// Disk is a recorded disk.
type Disk struct {
	// Path is its device.
	Path string

	dir     string
	loop    *blockdev.Loop
	process *exec.Cmd

	mu       sync.Mutex // of one request and its answer
	requests *os.File
	answers  *os.File
	encoder  *gob.Encoder
	decoder  *gob.Decoder
}

const diskName = "disk"

// New makes a disk of size bytes, all zero. It mounts the FUSE filesystem of the disk
// at dir, and serves it with another process of this test binary, see Serve.
func New(ctx context.Context, dir string, size int64) (*Disk, error) {
	d := &Disk{dir: dir}
	if err := d.start(size); err != nil {
		return nil, fmt.Errorf("start the recorded disk %s: %w", dir, err)
	}
	if err := d.attach(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the recorded disk %s: %w", dir, err), d.stop())
	}
	return d, nil
}

func (d *Disk) start(size int64) error {
	theirRequests, requests, err := os.Pipe()
	if err != nil {
		return err
	}
	answers, theirAnswers, err := os.Pipe()
	if err != nil {
		return errors.Join(err, theirRequests.Close(), requests.Close())
	}
	d.requests, d.encoder = requests, gob.NewEncoder(requests)
	d.answers, d.decoder = answers, gob.NewDecoder(answers)
	d.process = exec.Command(os.Args[0], "-test.run=^TestRecordedDisk$", "-test.timeout=0") //nolint:noctx // it ends by its pipe: a kill could hang in the kernel
	d.process.Env = append(os.Environ(), directoryVariable+"="+d.dir, fmt.Sprintf("%s=%d", sizeVariable, size))
	d.process.ExtraFiles = []*os.File{theirRequests, theirAnswers}
	d.process.Stderr = os.Stderr
	// An interrupt from the terminal must not end the disk before its user.
	d.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = d.process.Start()
	err = errors.Join(err, theirRequests.Close(), theirAnswers.Close())
	if err != nil {
		return errors.Join(err, requests.Close(), answers.Close())
	}
	if err := d.decoder.Decode(&answer{}); err != nil {
		return errors.Join(fmt.Errorf("its process did not start (is there a test TestRecordedDisk?): %w", err), d.stop())
	}
	return nil
}

func (d *Disk) attach(ctx context.Context) error {
	path := filepath.Join(d.dir, diskName)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	d.loop, err = blockdev.AttachLoop(ctx, blockdev.LoopConfig{
		File: file, Path: path, AutoClear: true, DirectIO: true, Discard: true,
	})
	if err != nil {
		return err
	}
	d.Path = d.loop.Path
	return nil
}

// Close detaches the disk. Filesystems on it must be unmounted.
func (d *Disk) Close() error {
	return errors.Join(d.loop.Close(), d.stop())
}

// stop ends the process: it does so when there can be no further request.
func (d *Disk) stop() error {
	return errors.Join(d.requests.Close(), d.process.Wait(), d.answers.Close())
}

func (d *Disk) call(asked request) (*saved, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var result answer
	if err := errors.Join(d.encoder.Encode(asked), d.decoder.Decode(&result)); err != nil {
		return nil, fmt.Errorf("%s: the process of the recorded disk %s: %w", asked.Name, d.dir, err)
	}
	if result.Failure != "" {
		return nil, fmt.Errorf("%s: the recorded disk %s: %s", asked.Name, d.dir, result.Failure)
	}
	return result.Recording, nil
}

// Record begins a recording, of a disk that writes sectors of that many bytes wholly or
// not at all. What the disk has now counts as flushed: sync the filesystem on it first.
func (d *Disk) Record(sector int64) error {
	_, err := d.call(request{Name: "record", Sector: sector})
	return err
}

// Mark adds a mark to the recording.
func (d *Disk) Mark(label string) error {
	_, err := d.call(request{Name: "mark", Label: label})
	return err
}

// Stop ends the recording. Insert then builds its states.
func (d *Disk) Stop() (*Recording, error) {
	recorded, err := d.call(request{Name: "stop"})
	if err != nil {
		return nil, err
	}
	return recorded.recording(), nil
}

// Load has Insert build the states of another recording.
func (d *Disk) Load(recording *Recording) error {
	_, err := d.call(request{Name: "load", Recording: recording.saved()})
	return err
}

// Insert gives the disk the content of a state. No filesystem may be mounted on it.
func (d *Disk) Insert(state State) error {
	device, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	defer func() { _ = device.Close() }()
	// The kernel's cache of the device has the content of before. It writes dirty
	// blocks back: this comes before the change.
	if err := unix.IoctlSetInt(int(device.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return fmt.Errorf("drop the cache of %s: %w", d.Path, err)
	}
	_, err = d.call(request{Name: "insert", State: state})
	return err
}
