package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
)

// faulty is an operation whose system calls fail one after the other.
type faulty struct {
	prepare func(context.Context, *guard.Guard) error // makes what act needs
	act     func(context.Context, *guard.Guard) error
	exists  func(context.Context, *guard.Guard) error // nil when the effect of act is there; nil func: not checked
	reset   func(context.Context, *guard.Guard) error // undoes act
}

func faultyOperations() map[string]faulty {
	make := func(name string, source backend.Source, provisioning string) func(context.Context, *guard.Guard) error {
		return func(ctx context.Context, g *guard.Guard) error {
			_, err := g.CreateVolume(ctx, guard.CreateRequest{
				Name: name, Range: backend.SizeRange{Required: 2 * mebibyte}, Source: source,
				Parameters:   map[string]string{parameterProvisioning: provisioning},
				Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter, Block: true}},
			})
			return err
		}
	}
	remove := func(name string) func(context.Context, *guard.Guard) error {
		return func(ctx context.Context, g *guard.Guard) error { return g.DeleteVolume(ctx, idOf(volumePrefix, name)) }
	}
	find := func(name string) func(context.Context, *guard.Guard) error {
		return func(ctx context.Context, g *guard.Guard) error {
			_, err := g.Volume(ctx, idOf(volumePrefix, name))
			return err
		}
	}
	one := make("one", backend.Source{}, thin)
	two := make("two", backend.Source{}, thick)
	both := func(ctx context.Context, g *guard.Guard) error { return errors.Join(one(ctx, g), two(ctx, g)) }
	sources := []string{idOf(volumePrefix, "one"), idOf(volumePrefix, "two")}
	snapshot := func(name, source string) func(context.Context, *guard.Guard) error {
		return func(ctx context.Context, g *guard.Guard) error {
			_, err := g.CreateSnapshot(ctx, backend.SnapshotSpec{Name: name, SourceID: source})
			return err
		}
	}
	dropSnapshot := func(name string) func(context.Context, *guard.Guard) error {
		return func(ctx context.Context, g *guard.Guard) error {
			return g.DeleteSnapshot(ctx, idOf(snapshotPrefix, name))
		}
	}
	findSnapshot := func(name string) func(context.Context, *guard.Guard) error {
		return func(ctx context.Context, g *guard.Guard) error {
			_, err := g.Snapshot(ctx, idOf(snapshotPrefix, name))
			return err
		}
	}
	group := func(ctx context.Context, g *guard.Guard) error {
		_, err := g.CreateGroup(ctx, backend.GroupSnapshotSpec{Name: "group", SourceIDs: sources})
		return err
	}
	dropGroup := func(ctx context.Context, g *guard.Guard) error {
		return g.DeleteGroup(ctx, idOf(groupPrefix, "group"), nil)
	}
	findGroup := func(ctx context.Context, g *guard.Guard) error {
		_, err := g.Group(ctx, idOf(groupPrefix, "group"), nil)
		return err
	}
	absent := func(find func(context.Context, *guard.Guard) error) func(context.Context, *guard.Guard) error {
		return func(ctx context.Context, g *guard.Guard) error {
			if err := find(ctx, g); !errors.Is(err, backend.ErrNotFound) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		}
	}
	withSnapshot := func(ctx context.Context, g *guard.Guard) error {
		return errors.Join(one(ctx, g), snapshot("snap", sources[0])(ctx, g))
	}
	withGroup := func(ctx context.Context, g *guard.Guard) error { return errors.Join(both(ctx, g), group(ctx, g)) }
	return map[string]faulty{
		"create thin":       {nil, make("new", backend.Source{}, thin), find("new"), remove("new")},
		"create thick":      {nil, make("new", backend.Source{}, thick), find("new"), remove("new")},
		"clone":             {one, make("new", backend.Source{VolumeID: sources[0]}, thin), find("new"), remove("new")},
		"restore":           {withSnapshot, make("new", backend.Source{SnapshotID: idOf(snapshotPrefix, "snap")}, thick), find("new"), remove("new")},
		"snapshot":          {one, snapshot("new", sources[0]), findSnapshot("new"), dropSnapshot("new")},
		"snapshot of thick": {two, snapshot("new", sources[1]), findSnapshot("new"), dropSnapshot("new")},
		"group":             {both, group, findGroup, dropGroup},
		"delete volume":     {make("new", backend.Source{}, thin), remove("new"), absent(find("new")), nil},
		"delete snapshot":   {withSnapshot, dropSnapshot("snap"), absent(findSnapshot("snap")), nil},
		"delete group":      {withGroup, dropGroup, absent(findGroup), nil},
		"expand": {make("new", backend.Source{}, thin), func(ctx context.Context, g *guard.Guard) error {
			_, err := g.Expand(ctx, idOf(volumePrefix, "new"), backend.SizeRange{Required: 3 * mebibyte})
			return err
		}, nil, remove("new")},
		"modify": {make("new", backend.Source{}, thin), func(ctx context.Context, g *guard.Guard) error {
			return g.Modify(ctx, idOf(volumePrefix, "new"), map[string]string{parameterProvisioning: thick}, nil)
		}, nil, remove("new")},
	}
}

// Every system call of every operation fails once; then all calls from it on fail.
// After each the pool must be consistent, in the same process and in the next one, and
// the repeated call must succeed.
func TestFault_atEverySystemCallLeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	for _, fsType := range []string{"ext4", "xfs"} {
		base := disk(t, fsType, 600*mebibyte)
		for _, name := range slices.Sorted(maps.Keys(faultyOperations())) {
			if !sweepCovers(fsType, name) {
				continue
			}
			t.Run(fsType+" "+name, func(t *testing.T) {
				t.Parallel()
				dir, err := os.MkdirTemp(base, "pool-") //nolint:usetesting // on the filesystem under test
				must(t, err)
				sweepFaults(t, dir, faultyOperations()[name])
			})
		}
	}
}

// sweepFaults opens the pool once for all runs without a restart: each of them
// leaves it as it was.
func sweepFaults(t *testing.T, dir string, operation faulty) {
	pool, err := tryOpen(t, Options{Pool: dir})
	must(t, err)
	defer func() { shut(t, pool) }()
	for number := 1; ; number++ {
		for variant, plan := range map[string]syscallfault.Plan{
			"once": syscallfault.Once(number, unix.EIO), "from there on": syscallfault.From(number, unix.EIO),
		} {
			for _, restart := range []bool{false, true} {
				var calls []syscallfault.Call
				pool, calls = operation.under(t, pool, plan, restart, fmt.Sprintf("EIO %s at call %d, restart %t",
					variant, number, restart))
				if len(calls) < number {
					t.Logf("%d system calls", len(calls))
					return
				}
			}
		}
	}
}

// under runs the operation with one plan and returns its system calls and the
// pool, which is another one after a restart.
func (o faulty) under(
	t *testing.T, pool *Pool, plan syscallfault.Plan, restart bool, what string,
) (*Pool, []syscallfault.Call) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := pool.options.Pool
	g := guard.New(pool)
	if o.prepare != nil {
		must(t, o.prepare(ctx, g))
	}
	var failure error
	calls, err := syscallfault.Run([]string{dir}, plan, func() { failure = o.act(ctx, g) })
	must(t, err)
	if len(calls) > 0 {
		what += fmt.Sprintf(", the last call was %s, answer: %v", calls[len(calls)-1], failure)
	}
	if restart {
		shut(t, pool)
		pool, err = tryOpen(t, Options{Pool: dir})
		must(t, err)
		g = guard.New(pool)
	}
	wantAgreement(ctx, t, pool, what)
	if failure == nil && o.exists != nil {
		if err := o.exists(ctx, g); err != nil {
			t.Fatalf("%s: the acknowledged effect is missing: %v", what, err)
		}
	}
	if err := o.act(ctx, g); err != nil {
		t.Fatalf("%s: the repeated call: %v", what, err)
	}
	wantAgreement(ctx, t, pool, what+", repeated")
	if o.exists != nil {
		if err := o.exists(ctx, g); err != nil {
			t.Fatalf("%s: after the repeated call: %v", what, err)
		}
	}
	if o.reset != nil {
		must(t, o.reset(ctx, g))
	}
	wantAgreement(ctx, t, pool, what+", removed")
	return pool, calls
}
