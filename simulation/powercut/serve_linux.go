package powercut

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The variables by which New instructs the process of a disk.
const (
	directoryVariable = "HOLDFAST_TEST_POWERCUT_DIRECTORY"
	sizeVariable      = "HOLDFAST_TEST_POWERCUT_SIZE"
)

// request is one call of Disk to the process that serves it.
type request struct {
	Name      string
	Sector    int64
	Label     string
	Recording *saved
	State     State
}

// answer is its result; Failure is empty after a success.
type answer struct {
	Failure   string
	Recording *saved
}

// Serve serves a disk if New started this process, until the process that did so ends,
// and returns at once otherwise. A package that calls New has a test named
// TestRecordedDisk, which calls Serve.
//
// The disk has a process of its own: a thread of the one that uses it may wait for the
// disk while it cannot be interrupted, also by the garbage collector or while it is
// killed.
func Serve() error {
	directory := os.Getenv(directoryVariable)
	if directory == "" {
		return nil
	}
	size, err := strconv.ParseInt(os.Getenv(sizeVariable), 10, 64)
	if err != nil {
		return fmt.Errorf("size of the disk: %w", err)
	}
	m := &media{image: NewImage(size)}
	_, err = fs.Mount(directory, &root{media: m}, &fs.Options{MountOptions: fuse.MountOptions{
		FsName: "powercut", Name: "powercut", DirectMountStrict: true, DisableSplice: true, MaxWrite: 1 << 20,
	}})
	if err != nil {
		return fmt.Errorf("mount a FUSE filesystem at %s: %w", directory, err)
	}
	err = m.answer(os.NewFile(3, "requests"), os.NewFile(4, "answers"))
	// The user of the disk may have been killed. This process would then be the last one
	// of the namespace with the filesystem on the disk: its end would unmount that, which
	// would wait for the disk forever. MNT_FORCE makes all requests fail from here on.
	return errors.Join(err, unix.Unmount(directory, unix.MNT_FORCE|unix.MNT_DETACH))
}

// media is what a disk is made of.
type media struct {
	mu        sync.Mutex
	image     *Image
	recording *Recording // nil while nothing is recorded
	builder   *builder   // of the last recording
}

func (m *media) answer(requests io.Reader, answers io.Writer) error {
	decoder, encoder := gob.NewDecoder(requests), gob.NewEncoder(answers)
	if err := encoder.Encode(answer{}); err != nil { // it is mounted
		return err
	}
	for {
		var asked request
		if err := decoder.Decode(&asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		result := answer{}
		if err := m.execute(asked, &result); err != nil {
			result.Failure = err.Error()
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
}

func (m *media) execute(asked request, result *answer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch asked.Name {
	case "record":
		m.recording = &Recording{Base: m.image.Flat(), Sector: asked.Sector}
	case "mark":
		m.record(Event{Kind: Mark, Label: asked.Label})
	case "stop":
		result.Recording = m.recording.saved()
		m.builder, m.recording = newBuilder(m.recording), nil
	case "load":
		m.builder = newBuilder(asked.Recording.recording())
	case "insert":
		image, err := m.builder.build(asked.State)
		if err != nil {
			return err
		}
		m.image = image
	default:
		return fmt.Errorf("request %q is not known", asked.Name)
	}
	return nil
}

func (m *media) record(event Event) {
	if m.recording != nil {
		m.recording.Events = append(m.recording.Events, event)
	}
}

// root is the directory with the disk's file.
type root struct {
	fs.Inode
	media *media
}

// OnAdd makes the file.
func (r *root) OnAdd(ctx context.Context) {
	r.AddChild(diskName, r.NewPersistentInode(ctx, &file{media: r.media}, fs.StableAttr{Mode: syscall.S_IFREG}), true)
}

// file is the disk's file.
type file struct {
	fs.Inode
	media *media
}

var (
	_ fs.NodeOnAdder   = (*root)(nil)
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
	_ fs.NodeAllocater = (*file)(nil)
)

// Getattr reports the size.
func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(f.media.image.size)
	return 0
}

// Open keeps the kernel from caching the file: each request of the block layer
// arrives here.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, target []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	f.media.mu.Lock()
	defer f.media.mu.Unlock()
	target = target[:max(0, min(int64(len(target)), f.media.image.size-offset))]
	f.media.image.read(target, offset)
	return fuse.ReadResultData(target), 0
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	length := int64(len(data))
	if offset+length > f.media.image.size {
		return 0, syscall.ENOSPC
	}
	f.media.mu.Lock()
	defer f.media.mu.Unlock()
	f.media.image.write(data, offset)
	if f.media.recording != nil {
		f.media.record(Event{Kind: Write, Offset: offset, Length: length, Data: append([]byte(nil), data...)})
	}
	return uint32(length), 0
}

// Fsync is a flush: the loop driver passes each one on.
func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	f.media.mu.Lock()
	defer f.media.mu.Unlock()
	f.media.record(Event{Kind: Flush})
	return 0
}

// Allocate is a discard or a request for zeros.
func (f *file) Allocate(_ context.Context, _ fs.FileHandle, offset, length uint64, mode uint32) syscall.Errno {
	if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) == 0 {
		return syscall.EOPNOTSUPP
	}
	f.media.mu.Lock()
	defer f.media.mu.Unlock()
	f.media.image.zero(int64(offset), int64(length))
	f.media.record(Event{Kind: Zero, Offset: int64(offset), Length: int64(length)})
	return 0
}
