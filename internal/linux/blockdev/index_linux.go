package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// LoopIndex finds the loop devices of a file without reading all loop devices of the
// machine each time. The kernel's events name the devices that changed since the last
// lookup, whichever process changed them, and only these are read again. Whatever the
// index finds is read back from the device before it is returned.
//
// All devices are read where events do not arrive, after events were lost, and
// rescanAfter the last time. Callers that wait for such a scan share one that began
// after their calls.
type LoopIndex struct {
	// silent: the kernel sends an event of a device that loses its file, and none of one
	// that gets a file. Devices that have a file and are not in the index are read then.
	silent  bool
	started atomic.Uint64 // scans

	mu        sync.Mutex
	events    *uevents // nil: none arrive
	current   bool     // but for the events that wait
	completed uint64   // the last scan that succeeded
	scanned   time.Time
	devices   map[string]*attached
	byName    map[string][]*attached // by commonName of the file
	byFile    map[fileID][]*attached // as far as it was read
}

// rescanAfter bounds how long the index can lack a change of which there is no event,
// as when a file is renamed before its device was ever confirmed.
const rescanAfter = time.Minute

// attached is a device with a file. It is replaced when the device changes.
type attached struct {
	device string // "loopN"
	name   string // commonName of the file
	file   fileID // the zero value until it is known
}

type fileID struct{ device, inode uint64 }

// NewLoopIndex returns an index. Without events it works as LoopsOf does; unsubscribed is
// the reason. Close it.
func NewLoopIndex() (x *LoopIndex, unsubscribed error) {
	events, err := subscribe()
	return &LoopIndex{events: events, silent: !announcesAttachments()}, err
}

// Close ends the subscription. The index can be used further.
func (x *LoopIndex) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.events == nil {
		return nil
	}
	err := x.events.close()
	x.events = nil
	return err
}

// LoopsOf lists the loop devices that are backed by this very file; see LoopIndex.Of.
func LoopsOf(file *os.File) ([]Loop, error) { return (&LoopIndex{}).Of(file) }

// Of lists the loop devices that are backed by this very file, without opening them.
//
// Every candidate is confirmed by device and inode. Candidates are those that were found
// to have the file before, and those whose backing file has the same name in a directory
// of the same name, as far as its path shows: opening all loop devices of the machine
// instead would keep alive, for an instant, those that others are just detaching. A file
// with several hard links is therefore not supported. ErrUnavailable if the kernel cannot
// read the device and inode of a candidate: it may have this file, and a caller that takes
// the file for unused would delete it, or attach it a second time.
func (x *LoopIndex) Of(file *os.File) ([]Loop, error) {
	found, err := x.of(file)
	if err != nil {
		return nil, fmt.Errorf("list loop devices of %s: %w", file.Name(), err)
	}
	return found, nil
}

func (x *LoopIndex) of(file *os.File) ([]Loop, error) {
	stat, err := statFile(file)
	if err != nil {
		return nil, err
	}
	want := fileID{uint64(stat.Dev), stat.Ino}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	if err != nil {
		return nil, err
	}
	candidates, err := x.candidates(want, name)
	if err != nil {
		return nil, err
	}
	var found []Loop
	for _, a := range candidates {
		loop, err := candidate(a.device, name)
		if err != nil {
			return nil, err
		}
		if loop == nil {
			continue
		}
		if loop.unconfirmed {
			return nil, unconfirmed(loop)
		}
		x.learn(a, fileID{loop.device, loop.inode})
		if want == (fileID{loop.device, loop.inode}) {
			found = append(found, *loop)
		}
	}
	return found, nil
}

// candidates selects the devices that may have a file.
func (x *LoopIndex) candidates(want fileID, name string) ([]*attached, error) {
	arrived := x.started.Load()
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.refresh(arrived); err != nil {
		x.current = false
		return nil, err
	}
	found := slices.Clone(x.byFile[want])
	for _, key := range slices.Compact([]string{commonName(name), rootName(name)}) {
		for _, a := range x.byName[key] {
			if a.file == (fileID{}) {
				found = append(found, a)
			}
		}
	}
	return found, nil
}

// refresh brings the index up to date: by the events that wait, or by a scan. A scan
// that began after the call arrived serves it, too.
func (x *LoopIndex) refresh(arrived uint64) error {
	if x.events == nil {
		if x.completed > arrived {
			return nil
		}
		return x.scan()
	}
	changed, lost, err := x.events.changed()
	if err != nil { // a socket that fails is not used again
		_ = x.events.close()
		x.events = nil
	}
	if err != nil || lost || !x.current || time.Since(x.scanned) > rescanAfter {
		return x.scan()
	}
	if err := x.readAll(changed); err != nil {
		return err
	}
	return x.readUnannounced()
}

// readUnannounced reads the devices that have a file and are not in the index, where no
// events name them. A device that got another file meanwhile had an event when it lost
// the first.
func (x *LoopIndex) readUnannounced() error {
	if !x.silent {
		return nil
	}
	names, err := attachedLoops()
	if err != nil {
		return err
	}
	return x.readAll(slices.DeleteFunc(names, func(name string) bool { return x.devices[name] != nil }))
}

// scan reads all devices. A device that changes meanwhile has an event that waits then.
func (x *LoopIndex) scan() error {
	number := x.started.Add(1)
	names, err := attachedLoops()
	if err != nil {
		return err
	}
	x.devices, x.byName, x.byFile = map[string]*attached{}, map[string][]*attached{}, map[fileID][]*attached{}
	if err := x.readAll(names); err != nil {
		return err
	}
	x.current, x.completed, x.scanned = true, number, time.Now()
	return nil
}

func (x *LoopIndex) readAll(devices []string) error {
	for _, device := range devices {
		x.remove(device)
		backing, err := backingFile(device)
		if err != nil {
			return err
		}
		if backing != "" {
			a := &attached{device: device, name: commonName(backing)}
			x.devices[device] = a
			x.byName[a.name] = append(x.byName[a.name], a)
		}
	}
	return nil
}

func (x *LoopIndex) remove(device string) {
	a := x.devices[device]
	if a == nil {
		return
	}
	delete(x.devices, device)
	without(x.byName, a.name, a)
	without(x.byFile, a.file, a)
}

// without takes an entry out of a map of lists.
func without[K comparable](lists map[K][]*attached, key K, a *attached) {
	left := slices.DeleteFunc(lists[key], func(other *attached) bool { return other == a })
	if len(left) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = left
}

// learn notes the file that was read back from a device, unless the device changed
// meanwhile. Another file than before means that an event is missing.
func (x *LoopIndex) learn(a *attached, file fileID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.devices[a.device] != a:
	case a.file == fileID{}:
		a.file = file
		x.byFile[file] = append(x.byFile[file], a)
	case a.file != file:
		x.current = false
	}
}

// commonName is the part of a path that a file has under any mount: its name and that of
// its directory. Two files can share it.
func commonName(path string) string {
	path = strings.TrimSuffix(path, deletedSuffix)
	return filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
}

// rootName is the commonName of a file whose directory was the root of a mount that is
// gone (see mayBe).
func rootName(path string) string {
	return commonName(filepath.Join("/", filepath.Base(strings.TrimSuffix(path, deletedSuffix))))
}
