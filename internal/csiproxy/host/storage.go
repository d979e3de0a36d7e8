package host

import (
	"log/slog"
	"sync"
)

// storage is what the groups about disks, volumes, shares and services share.
type storage struct {
	records *records
	rescans once
	// numbers are those that disk interfaces had when they last answered: only to
	// list a disk that does not answer now.
	numbers sync.Map // interface path → uint32
	proofs  *proofs
}

func newStorage(options Options, logger *slog.Logger) (*storage, error) {
	records, err := newRecords(options.StateDir, logger)
	if err != nil {
		return nil, err
	}
	return &storage{records: records, proofs: newProofs()}, nil
}
