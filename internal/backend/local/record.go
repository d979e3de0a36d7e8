package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// recordVersion is written into every record. A record with a higher one comes
// from a newer Holdfast: its entry is not changed, and calls for its ID are rejected.
const recordVersion = 1

type state string

const (
	creating state = "creating"
	ready    state = "ready"
	deleting state = "deleting" // groups only, and only as an earlier version wrote it
)

// header has the first fields of every record.
type header struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	State   state  `json:"state"`
}

func (h header) head() header { return h }

type volumeRecord struct {
	header
	Name         string            `json:"name"`
	Size         int64             `json:"size"` // bytes
	Provisioning string            `json:"provisioning"`
	SectorSize   int               `json:"sectorSize"` // bytes
	Parameters   map[string]string `json:"parameters,omitempty"`
	Mutable      map[string]string `json:"mutableParameters,omitempty"` // as at creation
	Source       source            `json:"source,omitzero"`
	Created      time.Time         `json:"created"`
	Copy         *copyState        `json:"copy,omitempty"`
	Inline       *inlineFacts      `json:"inline,omitempty"`
}

// source is backend.Source as it is written down.
type source struct {
	SnapshotID string `json:"snapshotID,omitempty"`
	VolumeID   string `json:"volumeID,omitempty"`
}

// inlineFacts say whose an inline volume is.
type inlineFacts struct {
	Target string            `json:"target"`
	Owner  map[string]string `json:"owner,omitempty"`
}

type snapshotRecord struct {
	header
	Name       string            `json:"name"`
	SourceID   string            `json:"sourceID"`
	GroupID    string            `json:"groupID,omitempty"`
	Size       int64             `json:"size"` // bytes
	SectorSize int               `json:"sectorSize"`
	Formatted  string            `json:"formatted,omitempty"` // filesystem that the source was known to have
	Parameters map[string]string `json:"parameters,omitempty"`
	Created    time.Time         `json:"created"`
	Copy       *copyState        `json:"copy,omitempty"`
}

type groupRecord struct {
	header
	Name       string            `json:"name"`
	SourceIDs  []string          `json:"sourceIDs"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Created    time.Time         `json:"created"`
}

// copyState is how far the content of a source has come into an unfinished
// file, so that the repeated call need not begin again.
type copyState struct {
	// Offset is the number of bytes that are durable in the copy.
	Offset int64 `json:"offset"`
	// Source reports whether the source was written to in between.
	Source fingerprint `json:"source"`
	// Complete: everything of the source is here; only allocation is missing.
	Complete bool `json:"complete,omitempty"`
}

// fingerprint changes whenever the content of a file does.
type fingerprint struct {
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // nanoseconds
	Changed  int64  `json:"changed"`  // nanoseconds
}

func newHeader(id string) header {
	return header{Version: recordVersion, ID: id, State: creating}
}

// stored is the interface of all records.
type stored interface {
	head() header
	check() error
}

// decode reads a record and checks that it is the one of that ID.
func decode[T stored](data []byte, id string) (T, error) {
	var record T
	// The version alone, first: in a newer record all else may mean something else.
	var versioned struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &versioned); err != nil {
		return record, fmt.Errorf("%w: the record of %s cannot be read: %w", backend.ErrDataLoss, id, err)
	}
	if versioned.Version > recordVersion {
		return record, fmt.Errorf("%w: the record of %s has version %d, this Holdfast knows up to %d; use the newer one",
			backend.ErrPrecondition, id, versioned.Version, recordVersion)
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return record, fmt.Errorf("%w: the record of %s cannot be read: %w", backend.ErrDataLoss, id, err)
	}
	h := record.head()
	if h.Version < 1 || h.ID != id || (h.State != creating && h.State != ready && h.State != deleting) {
		return record, fmt.Errorf("%w: the record of %s says version %d, ID %q, state %q",
			backend.ErrDataLoss, id, h.Version, h.ID, h.State)
	}
	if err := record.check(); err != nil {
		return record, fmt.Errorf("%w: the record of %s: %w", backend.ErrDataLoss, id, err)
	}
	return record, nil
}

func (h header) check() error { return nil }

// check refuses values that this package never writes: a record that something
// else changed must harm no other volume.
func (r volumeRecord) check() error {
	switch {
	case r.Size <= 0 || r.Size > maximumSize:
		return fmt.Errorf("size %d is not within 1 to %d bytes", r.Size, int64(maximumSize))
	case r.Provisioning != thin && r.Provisioning != thick:
		return fmt.Errorf("provisioning %q is neither %s nor %s", r.Provisioning, thin, thick)
	case r.ID != idOf(volumePrefix, r.Name) && r.ID != idOf(ephemeralPrefix, r.Name):
		return fmt.Errorf("name %q belongs to another ID", r.Name)
	}
	return errors.Join(checkSectorSize(r.SectorSize), r.Copy.check())
}

func (r snapshotRecord) check() error {
	switch {
	case r.Size <= 0 || r.Size > maximumSize:
		return fmt.Errorf("size %d is not within 1 to %d bytes", r.Size, int64(maximumSize))
	case r.GroupID == "" && r.ID != idOf(snapshotPrefix, r.Name):
		return fmt.Errorf("name %q belongs to another ID", r.Name)
	}
	return errors.Join(checkSectorSize(r.SectorSize), r.Copy.check())
}

func (r groupRecord) check() error {
	if r.ID != idOf(groupPrefix, r.Name) {
		return fmt.Errorf("name %q belongs to another ID", r.Name)
	}
	return nil
}

func checkSectorSize(bytes int) error {
	if bytes != 512 && bytes != defaultSectorSize {
		return fmt.Errorf("sector size %d is neither 512 nor %d", bytes, defaultSectorSize)
	}
	return nil
}

func (c *copyState) check() error {
	if c != nil && (c.Offset < 0 || c.Offset > maximumSize) {
		return fmt.Errorf("copy offset %d is not within 0 to %d bytes", c.Offset, int64(maximumSize))
	}
	return nil
}

func (r volumeRecord) thick() bool { return r.Provisioning == thick }

// same reports whether two records ask for the same thing. The result and the time
// of creation are not compared.
func (r volumeRecord) same(other volumeRecord) bool {
	return r.Name == other.Name && r.Size == other.Size && r.Source == other.Source &&
		maps.Equal(r.Parameters, other.Parameters) && maps.Equal(r.Mutable, other.Mutable)
}

func (r volumeRecord) name() string { return r.Name }

func (r snapshotRecord) same(other snapshotRecord) bool {
	return r.Name == other.Name && r.SourceID == other.SourceID && maps.Equal(r.Parameters, other.Parameters)
}

func (r snapshotRecord) name() string { return r.Name }

func (r groupRecord) same(other groupRecord) bool {
	return r.Name == other.Name && slices.Equal(r.SourceIDs, other.SourceIDs) &&
		maps.Equal(r.Parameters, other.Parameters)
}

func (r groupRecord) name() string { return r.Name }

func (r volumeRecord) volume(topology backend.Topology) backend.Volume {
	return backend.Volume{
		ID: r.ID, Name: r.Name, Size: r.Size,
		Parameters: maps.Clone(r.Parameters), MutableParameters: maps.Clone(r.Mutable),
		Source: backend.Source(r.Source), Created: r.Created,
		Topology: []backend.Topology{maps.Clone(topology)},
	}
}

func (r volumeRecord) ephemeral() backend.EphemeralVolume {
	return backend.EphemeralVolume{VolumeID: r.ID, Handle: r.Name, Target: r.Inline.Target, Size: r.Size}
}

func (r snapshotRecord) snapshot(topology backend.Topology) backend.Snapshot {
	return backend.Snapshot{
		Topology: []backend.Topology{maps.Clone(topology)},
		ID:       r.ID, Name: r.Name, SourceID: r.SourceID, GroupID: r.GroupID, Size: r.Size,
		Created: r.Created, Ready: true, Parameters: maps.Clone(r.Parameters),
	}
}
