// Package guard wraps a backend's Controller with what CSI demands of every
// backend alike, so that no backend writes it again: idempotency by name, a
// repeat with other arguments refused, deletion of an absent thing done, size
// ranges resolved, capabilities and parameter names checked, paging, and one
// operation per key at a time.
//
// It speaks sentinel errors and knows neither gRPC nor any backend.
package guard

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Guard is a Controller with the common rules around it.
type Guard struct {
	controller backend.Controller
	traits     backend.Traits
	locks      concurrency.Locks
}

// New wraps a controller.
func New(controller backend.Controller) *Guard {
	return &Guard{controller: controller, traits: controller.Traits()}
}

// Traits are those of the wrapped controller.
func (g *Guard) Traits() backend.Traits { return g.traits }

// Features are the optional interfaces that the controller implements.
type Features struct {
	Snapshots, Groups, Attach, Expand, Modify, Capacity, Health bool
}

// Features of the wrapped controller.
func (g *Guard) Features() Features {
	return Features{
		Snapshots: implements[backend.Snapshotter](g),
		Groups:    implements[backend.GroupSnapshotter](g),
		Attach:    implements[backend.Attacher](g),
		Expand:    implements[backend.Expander](g),
		Modify:    implements[backend.Modifier](g),
		Capacity:  implements[backend.CapacityReporter](g),
		Health:    implements[backend.HealthReporter](g),
	}
}

// Probe reports whether the backend works now.
func (g *Guard) Probe(ctx context.Context) error {
	reachable, ok := g.controller.(backend.Reachable)
	if !ok {
		return nil
	}
	return reachable.Probe(ctx)
}

func implements[T any](g *Guard) bool {
	_, ok := g.controller.(T)
	return ok
}

// feature returns the controller as T, or says that it does not offer that.
func feature[T any](g *Guard, what string) (T, error) {
	offered, ok := g.controller.(T)
	if !ok {
		return offered, fmt.Errorf("%w: backend %s offers no %s", backend.ErrUnsupported, g.traits.DriverName, what)
	}
	return offered, nil
}

// lock locks keys for one owner; busy names the key of another operation.
func (g *Guard) lock(busy string, keys ...string) (func(), error) {
	unlock, ok := g.locks.TryLock(keys...)
	if !ok {
		return nil, fmt.Errorf("%w: another call is working on %s; repeat this one when it has ended", backend.ErrBusy, busy)
	}
	return unlock, nil
}

func (g *Guard) share(busy, key string) (func(), error) {
	unlock, ok := g.locks.TryShare(key)
	if !ok {
		return nil, fmt.Errorf("%w: another call is changing %s; repeat this one when it has ended", backend.ErrBusy, busy)
	}
	return unlock, nil
}

// The keys of locks: names are those of the CO, IDs those of the backend.
func volumeName(name string) string   { return "volume name " + name }
func volumeID(id string) string       { return "volume " + id }
func snapshotName(name string) string { return "snapshot name " + name }
func snapshotID(id string) string     { return "snapshot " + id }
func groupName(name string) string    { return "group snapshot name " + name }
func groupID(id string) string        { return "group snapshot " + id }
