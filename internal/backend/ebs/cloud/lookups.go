package cloud

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Keys of one describe. EC2 takes 200 values per filter and 100
// instance types.
const (
	filterLimit = 200
	typeLimit   = 100
)

// How old answers about what hardly changes may get.
const (
	typeLifetime = time.Hour
	zoneLifetime = 10 * time.Minute
)

// everyZone is the only key that zones are looked up by.
const everyZone = "zones"

// lookups are the batchers, one per question. Those by filter never fail for a
// missing ID; those by ID are asked about what a filter did not find, because
// filters are the last to show what is new.
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
	knownTypes               *kept[InstanceType]
	knownZones               *kept[[]Zone]
}

func (c *Client) makeLookups() {
	options := concurrency.BatchOptions{Limit: filterLimit, Bursts: c.bursts}
	byID := options
	byID.Split = isNotFound
	lasting := options
	lasting.Join, lasting.Limit = true, typeLimit
	l := &c.lookups
	l.volumes = concurrency.NewBatcher(c.describeVolumes, options)
	l.volumesByID = concurrency.NewBatcher(c.describeVolumesByID, byID)
	l.volumesNamed = concurrency.NewBatcher(c.describeVolumesNamed, options)
	l.instances = concurrency.NewBatcher(c.describeInstances, options)
	l.instancesByID = concurrency.NewBatcher(c.describeInstancesByID, byID)
	l.types = concurrency.NewBatcher(c.describeInstanceTypes, lasting)
	l.modifications = concurrency.NewBatcher(c.describeModifications, options)
	l.snapshots = concurrency.NewBatcher(c.describeSnapshots, options)
	l.snapshotsByID = concurrency.NewBatcher(c.describeSnapshotsByID, byID)
	l.snapshotsNamed = concurrency.NewBatcher(c.describeSnapshotsNamed, options)
	l.statuses = concurrency.NewBatcher(c.describeStatuses, byID)
	l.fastRestores = concurrency.NewBatcher(c.describeFastRestores, options)
	l.locks = concurrency.NewBatcher(c.describeLocks, byID)
	l.zones = concurrency.NewBatcher(c.describeZones, lasting)
	l.knownTypes, l.knownZones = newKept[InstanceType](typeLifetime), newKept[[]Zone](zoneLifetime)
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

// kept are answers that may be used again until they expire. Their lifetime begins when
// they are received and is never extended. Missing objects are not kept.
type kept[V any] struct {
	lifetime time.Duration
	mu       sync.Mutex
	values   map[string]keptValue[V]
}

type keptValue[V any] struct {
	value V
	until time.Time
}

func newKept[V any](lifetime time.Duration) *kept[V] {
	return &kept[V]{lifetime: lifetime, values: map[string]keptValue[V]{}}
}

func (k *kept[V]) get(key string) (v V, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	got, has := k.values[key]
	if !has || !time.Now().Before(got.until) {
		delete(k.values, key)
		return v, false
	}
	return got.value, true
}

func (k *kept[V]) put(key string, v V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.values[key] = keptValue[V]{v, time.Now().Add(k.lifetime)}
}

// isNotFound reports whether a describe by IDs failed for one that EC2 does not know.
func isNotFound(err error) bool {
	code := Code(err)
	return strings.HasSuffix(code, ".NotFound") || strings.HasSuffix(code, ".Malformed")
}

// byID asks by IDs and leaves out those that EC2 says it does not know, so that
// one bad ID does not fail the others. EC2 names them in its message;
// otherwise the batcher finds them by halving.
func byID[V any](ctx context.Context, ids []string, ask func(context.Context, []string) (map[string]V, error)) (map[string]V, error) {
	for len(ids) > 0 {
		values, err := ask(ctx, ids)
		if err == nil || !isNotFound(err) {
			return values, err
		}
		if len(ids) == 1 {
			break
		}
		unknown := named(err)
		var rest []string
		for _, id := range ids {
			if !unknown[id] {
				rest = append(rest, id)
			}
		}
		if len(rest) == len(ids) {
			return nil, err
		}
		ids = rest
	}
	return map[string]V{}, nil
}

// named are the words of EC2's message, the IDs among them.
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
