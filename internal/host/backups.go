package host

import (
	"context"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// A backup is made at each start and end of the host and, of a store that changed,
// once in backupEvery. One that fails, on a full disk say, is tried again after
// backupRetry, doubling to backupEvery.
const (
	backupEvery = time.Hour
	backupRetry = time.Minute
)

// backUp makes a backup of the store. If that fails, the host serves nevertheless: its
// store is whole, and running pods need it.
func (h *Host) backUp(ctx context.Context) {
	err := h.store.Backup()
	about := journal.Ref{Kind: "CSINode", Key: h.nodeName()}
	switch {
	case err != nil:
		h.options.Logger.WarnContext(ctx, "the store has no new backup", "error", err)
		h.journal.Record(journal.Notice{About: about, Warning: true, Reason: "StoreBackupFailed", Message: err.Error()})
	case h.unsaved:
		h.options.Logger.InfoContext(ctx, "the store is backed up again")
		h.journal.Record(journal.Notice{About: about, Reason: "StoreBackedUp", Message: "The store is backed up again."})
	}
	h.unsaved = err != nil
}

// keepBackups makes backups until the context ends.
func (h *Host) keepBackups(ctx context.Context) error {
	retry := time.Duration(0)
	for {
		pause := backupEvery
		if h.unsaved {
			retry = min(max(2*retry, backupRetry), backupEvery)
			pause = retry
		} else {
			retry = 0
		}
		if err := concurrency.Sleep(ctx, pause); err != nil {
			return nil //nolint:nilerr // the host stops
		}
		h.backUp(ctx)
	}
}
