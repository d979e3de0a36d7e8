package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// ErrNoSnapshot reports that the driver does not know a snapshot.
var ErrNoSnapshot = errors.New("the driver has no such snapshot")

// mostPages bounds a listing that is filtered by an ID, which has one entry at most: a
// driver that never ends it must not keep its caller.
const mostPages = 1000

// FindSnapshot finds a snapshot by its ID: with ListSnapshots if the driver has it,
// since drivers written for csi-snapshotter do, and else with GetSnapshot. It fails
// with ErrNoSnapshot if the driver does not know the snapshot. A page token must differ
// from the last one; entries that the filter excludes are skipped.
func (c *Client) FindSnapshot(
	ctx context.Context, offered ControllerCapabilities, id string, secrets map[string]string,
) (*csi.Snapshot, error) {
	if !offered.ListSnapshots {
		snapshot, err := c.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: id, Secrets: secrets})
		return snapshot, absentSnapshot(err)
	}
	request := &csi.ListSnapshotsRequest{SnapshotId: id, Secrets: secrets}
	for range mostPages {
		answer, err := c.ListSnapshots(ctx, request)
		if err != nil {
			return nil, absentSnapshot(err) // NOT_FOUND is not CSI here, but some drivers answer it
		}
		for _, entry := range answer.GetEntries() {
			if entry.GetSnapshot().GetSnapshotId() == id {
				return entry.GetSnapshot(), nil
			}
		}
		if answer.GetNextToken() == "" || answer.GetNextToken() == request.GetStartingToken() {
			return nil, fmt.Errorf("%w: ListSnapshots does not show %q", ErrNoSnapshot, id)
		}
		request.StartingToken = answer.GetNextToken()
	}
	return nil, fmt.Errorf("driver %s: ListSnapshots of the snapshot %q has more than %d pages: report this to its vendor",
		c.options.Driver, id, mostPages)
}

func absentSnapshot(err error) error {
	if errors.Is(err, backend.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNoSnapshot, err)
	}
	return err
}
