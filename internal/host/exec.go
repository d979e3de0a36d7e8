package host

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// ExecOptions say what is run with which volumes.
type ExecOptions struct {
	// Root is the host's root directory.
	Root string
	Hold api.HoldRequest
	// Targets are the absolute paths at which the command sees the volumes of
	// Hold, in their order.
	Targets []string
	Command []string
	// Stdin, Stdout and Stderr are the command's; Terminal tells that Stdin is
	// the terminal that this process is in the foreground of.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool
	// Starting is called when the volumes are in place.
	Starting func()
	// Warn is told what the policy warns of.
	Warn func(text string)
}

// releaseSeconds is how long the end of a command waits for its volumes to be
// removed; the host continues by itself.
const releaseSeconds = 60

// endLease gives the volumes of a lease back. A host that is away finds by the
// lease, when it is back, that the process is gone.
func endLease(ctx context.Context, client *api.Client, request api.HoldRequest, lease *api.Lease) error {
	err := client.Release(ctx, api.ReleaseRequest{Namespace: request.Namespace, Name: request.Name, UID: lease.UID}, releaseSeconds)
	if errors.Is(err, api.ErrNotFound) || errors.Is(err, api.ErrNoHost) {
		err = nil
	}
	return errors.Join(err, lease.Close())
}
