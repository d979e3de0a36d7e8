package local

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// hasFailed reports whether an error means that the filesystem or its device
// stopped working, after which only the kernel can be asked about devices.
func hasFailed(err error) bool {
	for _, errno := range []unix.Errno{unix.EIO, unix.ESHUTDOWN, unix.EUCLEAN, unix.ESTALE, unix.ENXIO, unix.ENODEV} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return errors.Is(err, errIdentity)
}

// errIdentity: pool.json is damaged.
var errIdentity = fmt.Errorf("%w: %s cannot be used; restore it, or start once with --adopt-pool to rewrite it",
	backend.ErrDataLoss, poolFile)

// inlineFailures count, by volume ID, the attempts in a row to read or to delete an
// inline volume that its storage failed.
type inlineFailures struct{ reads, deletions failureCount }

// failuresUntilFinal is how many attempts in a row must fail until the storage
// counts as failed. The kubelet repeats a call after 0.5 s, 1 s, 2 s and so on: a
// path to a disk that comes back within seconds is waited for.
const failuresUntilFinal = 5

type failureCount struct {
	mu    sync.Mutex
	count map[string]int
	last  map[string]error
}

// note counts a failure, and forgets the earlier ones after err nil.
func (f *failureCount) note(id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.count, id)
		delete(f.last, id)
		return
	}
	if f.count == nil {
		f.count, f.last = map[string]int{}, map[string]error{}
	}
	f.count[id]++
	f.last[id] = err
}

// final is the last error once there were failuresUntilFinal in a row, else nil.
func (f *failureCount) final(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count[id] < failuresUntilFinal {
		return nil
	}
	return f.last[id]
}

// recordFailed reports whether the error of reading the record of an inline volume
// is final: the record or its inode is damaged, the filesystem was shut down, the
// pool failed, or the record stayed unreadable, as on a bad sector.
func (p *Pool) recordFailed(id string, err error) bool {
	for _, final := range []error{backend.ErrDataLoss, backend.ErrPrecondition, unix.EUCLEAN, unix.ESHUTDOWN} {
		if errors.Is(err, final) {
			return true
		}
	}
	if p.usable() != nil {
		return true
	}
	if _, err := readSmall(p.root, poolFile); hasFailed(err) || errors.Is(err, backend.ErrDataLoss) {
		return true
	}
	if !hasFailed(err) {
		return false
	}
	p.inline.reads.note(id, err)
	return p.inline.reads.final(id) != nil
}

// noteDeletion counts deletions that the storage failed, or that a read-only
// filesystem refused: the record may be read from the cache nevertheless.
func (p *Pool) noteDeletion(id string, err error) {
	if err == nil || hasFailed(err) || errors.Is(err, errReadOnly) || errors.Is(err, unix.EROFS) {
		p.inline.deletions.note(id, err)
	}
}
