package cloud

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// The most keys of one describe. EC2 accepts 200 values per filter and 100 instance
// types.
const (
	filterLimit = 200
	typeLimit   = 100
)

// How long the answers about instance types and zones are cached.
const (
	typeLifetime = time.Hour
	zoneLifetime = 10 * time.Minute
)

// everyZone is the only key that zones are looked up by.
const everyZone = "zones"

// lookups are the batchers, one for each kind of describe. Those by filter do not fail
// for a missing ID. Those by ID look up what a filter did not find, because EC2 shows a
// new resource by its ID before it finds it by a filter.
type lookups struct {
	volumes, volumesByID     *concurrency.Batcher[string, Volume]
	volumesNamed             *concurrency.Batcher[string, []Volume]
	instances, instancesByID *concurrency.Batcher[string, Instance]
	types                    *concurrency.Batcher[string, InstanceType]
	modifications            *concurrency.Batcher[string, Modification]
	snapshots, snapshotsByID *concurrency.Batcher[string, Snapshot]
	snapshotsNamed           *concurrency.Batcher[string, []Snapshot]
	statuses                 *concurrency.Batcher[string, Status]
	fastRestores             *concurrency.Batcher[string, []FastRestore]
	locks                    *concurrency.Batcher[string, Lock]
	zones                    *concurrency.Batcher[string, []Zone]
	// Cached answers. A missing resource is not cached.
	knownTypes concurrency.Expiring[string, InstanceType]
	knownZones concurrency.Expiring[string, []Zone]
}

func (c *Client) makeLookups() {
	options := concurrency.BatchOptions{Limit: filterLimit, Bursts: c.bursts}
	split := options
	split.Split = isNotFound
	lasting := options
	lasting.Join, lasting.Limit = true, typeLimit
	l := &c.lookups
	l.volumes = concurrency.NewBatcher(c.describeVolumes, options)
	l.volumesByID = concurrency.NewBatcher(byID(c.describeVolumesByID), split)
	l.volumesNamed = concurrency.NewBatcher(c.describeVolumesNamed, options)
	l.instances = concurrency.NewBatcher(c.describeInstances, options)
	l.instancesByID = concurrency.NewBatcher(byID(c.describeInstancesByID), split)
	l.types = concurrency.NewBatcher(c.describeInstanceTypes, lasting)
	l.modifications = concurrency.NewBatcher(c.describeModifications, options)
	l.snapshots = concurrency.NewBatcher(c.describeSnapshots, options)
	l.snapshotsByID = concurrency.NewBatcher(byID(c.describeSnapshotsByID), split)
	l.snapshotsNamed = concurrency.NewBatcher(c.describeSnapshotsNamed, options)
	l.statuses = concurrency.NewBatcher(byID(c.describeStatuses), split)
	l.fastRestores = concurrency.NewBatcher(c.describeFastRestores, options)
	l.locks = concurrency.NewBatcher(byID(c.describeLocks), split)
	l.zones = concurrency.NewBatcher(c.describeZones, lasting)
}

func (c *Client) closeLookups() {
	l := &c.lookups
	var all sync.WaitGroup
	for _, b := range []interface{ Close() }{
		l.volumes, l.volumesByID, l.volumesNamed, l.instances, l.instancesByID, l.types, l.modifications,
		l.snapshots, l.snapshotsByID, l.snapshotsNamed, l.statuses, l.fastRestores, l.locks, l.zones,
	} {
		all.Go(b.Close)
	}
	all.Wait()
}

// isNotFound reports whether a describe by IDs failed because one of them does not exist.
func isNotFound(err error) bool {
	code := Code(err)
	return strings.HasSuffix(code, ".NotFound") || strings.HasSuffix(code, ".Malformed")
}

// byID makes a describe by IDs omit those that do not exist, so that one bad ID does not
// fail the others. EC2 names them in its message; otherwise the batcher finds them by
// halving.
func byID[V any](describe concurrency.Fetch[string, V]) concurrency.Fetch[string, V] {
	return func(ctx context.Context, ids []string) (map[string]V, error) {
		for {
			values, err := describe(ctx, ids)
			if err == nil || !isNotFound(err) {
				return values, err
			}
			unknown := named(err)
			rest := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return unknown[id] })
			switch {
			case len(ids) == 1 || len(rest) == 0:
				return map[string]V{}, nil
			case len(rest) == len(ids):
				return nil, err
			}
			ids = rest
		}
	}
}

// named are the words of EC2's message, with the IDs among them.
func named(err error) map[string]bool {
	words := map[string]bool{}
	var e *Error
	if errors.As(err, &e) {
		for _, word := range strings.FieldsFunc(e.Message, func(r rune) bool {
			return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
		}) {
			words[word] = true
		}
	}
	return words
}
