package local

import (
	"errors"
	"io/fs"
	"sync/atomic"
	"time"
)

// foreign is what is known of the entries of the other half, when it is another process.
type foreign struct {
	// modified is when the directory of volumes was modified before its entries were last
	// read, in Unix nanoseconds; 0: they must be read again.
	modified atomic.Int64
}

// timestampTick is more than the resolution of file times, which is a tick of the kernel
// (4 to 10 ms) before Linux 6.13.
const timestampTick = 100 * time.Millisecond

// refreshForeign reads the entries that the other half, when it is another process, has
// made and removed, if the directory of volumes has changed since.
func (p *Pool) refreshForeign() error {
	if p.options.Role == RoleAll {
		return nil
	}
	began := time.Now()
	info, err := p.root.Stat(volumesDir)
	if err != nil || info.ModTime().UnixNano() == p.foreign.modified.Load() {
		return err
	}
	complete, err := p.readForeign()
	if err != nil {
		return err
	}
	// A change within the same tick of the kernel's clock leaves the time as it is.
	if complete && began.Sub(info.ModTime()) > timestampTick {
		p.foreign.modified.Store(info.ModTime().UnixNano())
	}
	return nil
}

// readForeign reports whether no entry is left that must be read again.
func (p *Pool) readForeign() (complete bool, err error) {
	names, err := p.list(volumesDir)
	if err != nil {
		return false, err
	}
	present, complete := map[string]bool{}, true
	for _, id := range names {
		present[id] = true
		if _, known, _ := p.index.volume(id); !known && !p.owns(id) && isVolumeID(id) {
			complete = p.loadForeign(id) && complete
		}
	}
	for _, record := range page(&p.index, func(x *index) map[string]volumeRecord { return x.volumes },
		func(r volumeRecord) bool { return !p.owns(r.ID) && !present[r.ID] }, "", 0) {
		p.forgetIfGone(volumePath(record.ID))
	}
	return complete, nil
}

// loadForeign enters a volume of the other half. It reports whether that is done: one that
// is being created, or whose record cannot be used, is read again.
func (p *Pool) loadForeign(id string) bool {
	record, err := readRecord[volumeRecord](p.root, volumePath(id), volumeFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && record.State == creating {
		return false
	}
	if err != nil {
		p.log.Warn("a record of the other half cannot be used", "id", id, "error", err)
		return false
	}
	p.enterVolume(record, p.unmeasured(record))
	return true
}
