// Package disk is a disk with a volatile write cache, for the emulator of the
// machine laboratory: what was written since the last flush is lost, kept or torn
// when the power goes. It serves the NBD protocol on a socket.
package disk

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
)

// sectorSize is what a disk writes as a whole or not at all, in bytes.
const sectorSize = 512

// Disk is a disk of two files: what the machine reads, and what is durable.
type Disk struct {
	// serving is held while an emulator is connected.
	serving sync.Mutex
	// mu guards the fields below it.
	mu sync.Mutex
	// current has every write, durable those that a flush has covered.
	current, durable *os.File
	size             int64
	// pending are the writes since the last flush, in their order.
	pending []write
	// lies reports flushes as done without doing them.
	lies bool
}

// write is one request of the machine. Its offset and length are multiples of
// sectorSize.
type write struct {
	offset int64
	data   []byte
}

// Create makes a disk of size bytes in a directory, its content that of the file
// from, which has that size.
func Create(directory, from string) (*Disk, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, fmt.Errorf("create a disk: %w", err)
	}
	if info.Size()%sectorSize != 0 {
		return nil, fmt.Errorf("create a disk of %s: its size of %d bytes is not a multiple of %d", from, info.Size(), sectorSize)
	}
	d := &Disk{size: info.Size()}
	if d.durable, err = copySparse(from, filepath.Join(directory, "durable")); err != nil {
		return nil, err
	}
	if d.current, err = copySparse(from, filepath.Join(directory, "current")); err != nil {
		return nil, errors.Join(err, d.durable.Close())
	}
	return d, nil
}

// Close closes the files.
func (d *Disk) Close() error { return errors.Join(d.durable.Close(), d.current.Close()) }

// Durable is the path of the file that has what a flush has covered.
func (d *Disk) Durable() string { return d.durable.Name() }

// Lie makes the disk answer flushes without performing them, as a disk with a
// defect does. It shows that a test would notice lost writes.
func (d *Disk) Lie() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lies = true
}

func (d *Disk) read(offset int64, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.current.ReadAt(data, offset)
	return err
}

// write keeps the data, which the caller must not change after that.
func (d *Disk) write(offset int64, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.current.WriteAt(data, offset); err != nil {
		return err
	}
	d.pending = append(d.pending, write{offset, data})
	return nil
}

func (d *Disk) flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lies {
		return nil
	}
	return d.commit(d.pending)
}

// commit makes the writes durable and empties the cache.
func (d *Disk) commit(writes []write) error {
	for _, w := range writes {
		if _, err := d.durable.WriteAt(w.data, w.offset); err != nil {
			return err
		}
	}
	d.pending = nil
	return nil
}

// Loss counts what a power cut did to the writes in the cache.
type Loss struct{ Kept, Torn, Lost int }

// CutPower makes the disk what it is after the power was gone: of the writes in
// the cache, each is kept with a probability, lost, or torn at a sector. The
// emulator must have ended; CutPower waits until its last request is done.
func (d *Disk) CutPower(random *rand.Rand, keep float64) (loss Loss, err error) {
	d.serving.Lock()
	defer d.serving.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	pending := d.pending
	var kept []write
	for _, w := range pending {
		sectors := len(w.data) / sectorSize
		switch {
		case sectors == 0:
		case random.Float64() < keep:
			loss.Kept++
			kept = append(kept, w)
		case sectors > 1 && random.Float64() < keep/4:
			loss.Torn++
			kept = append(kept, write{w.offset, w.data[:sectorSize*(1+random.IntN(sectors-1))]})
		default:
			loss.Lost++
		}
	}
	if err := d.commit(kept); err != nil {
		return loss, err
	}
	for _, w := range pending {
		data := make([]byte, len(w.data))
		if _, err := d.durable.ReadAt(data, w.offset); err != nil {
			return loss, err
		}
		if _, err := d.current.WriteAt(data, w.offset); err != nil {
			return loss, err
		}
	}
	return loss, nil
}

// copySparse copies a file without its zeros.
func copySparse(from, to string) (copied *os.File, err error) {
	source, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	info, err := source.Stat()
	if err != nil {
		return nil, err
	}
	target, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(target.Truncate(info.Size()), copyData(source, target, info.Size())); err != nil {
		return nil, errors.Join(fmt.Errorf("copy %s to %s: %w", from, to, err), target.Close())
	}
	return target, nil
}

func copyData(source, target *os.File, size int64) error {
	const block = 64 << 10
	data, zero := make([]byte, block), make([]byte, block)
	for offset := int64(0); offset < size; {
		next, err := nextData(source, offset)
		if err != nil || next >= size {
			return err
		}
		offset = next / block * block
		n, err := source.ReadAt(data, offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if string(data[:n]) != string(zero[:n]) {
			if _, err := target.WriteAt(data[:n], offset); err != nil {
				return err
			}
		}
		offset += block
	}
	return nil
}
