package host

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

const (
	// departAfter is how long a driver stays in the CSINode object of a host that
	// was started again before it registers: it may be about to.
	departAfter = time.Minute
	// shortestRefresh bounds CSIDriver.spec.nodeAllocatableUpdatePeriodSeconds from
	// below: the API allows 10 s, and nothing here polls faster than a minute.
	shortestRefresh = time.Minute
	// resourceExhausted is the number of the gRPC code with which a driver says
	// that no more volumes fit on the node.
	resourceExhausted = 8
)

// publishNode keeps the CSINode object of this machine until the context ends.
func (h *Host) publishNode(ctx context.Context) error {
	p := nodePublisher{host: h, until: time.Now().Add(departAfter), asked: map[string]time.Time{},
		full: make(chan string)}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.watchStore(ctx) })
	p.running = &running
	p.run(ctx)
	return nil
}

// nodePublisher keeps one CSINode object.
type nodePublisher struct {
	host *Host
	// until is when drivers that an earlier process published and that did not
	// register are withdrawn.
	until time.Time
	// asked is when each driver was asked for its limit last.
	asked map[string]time.Time
	// full has drivers that refused a volume for want of room, and "" when a
	// CSIDriver object changed.
	full    chan string
	running *sync.WaitGroup
}

func (p *nodePublisher) run(ctx context.Context) {
	for {
		changed := p.host.plugins.Changed()
		if err := p.publish(time.Now()); err != nil {
			p.host.options.Logger.Error("the CSINode object is not written", "error", err)
		}
		var due <-chan time.Time
		if next := p.refresh(ctx, time.Now()); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-due:
		case driver := <-p.full:
			p.fullUp(ctx, driver)
		}
	}
}

// publish writes the object if it is not as it should be.
func (p *nodePublisher) publish(now time.Time) error {
	name, nodes, keep := p.host.nodeName(), p.host.plugins.Nodes(), now.Before(p.until)
	var missing bool
	err := p.host.store.View(func(tx *store.Tx) error {
		node, err := tx.Nodes().Get(name)
		missing = err == nil && !sameDrivers(node, nodeDrivers(node, nodes, keep))
		return err
	})
	if err != nil || !missing {
		return err
	}
	return p.host.store.UpdateAs(&store.Writer{Name: "csinode"}, func(tx *store.Tx) error {
		node, err := tx.Nodes().Get(name)
		if err != nil {
			return err
		}
		drivers := nodeDrivers(node, nodes, keep)
		if node == nil {
			node = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: uuid.NewUUID(), CreationTimestamp: metav1.NewTime(now),
			}}
		}
		node.Spec.Drivers = drivers
		return tx.Nodes().Put(name, node)
	})
}

func sameDrivers(node *storagev1.CSINode, drivers []storagev1.CSINodeDriver) bool {
	return node != nil && slices.EqualFunc(node.Spec.Drivers, drivers, func(a, b storagev1.CSINodeDriver) bool {
		return a.Name == b.Name && a.NodeID == b.NodeID && slices.Equal(a.TopologyKeys, b.TopologyKeys) &&
			limit(a) == limit(b)
	})
}

func limit(driver storagev1.CSINodeDriver) int32 {
	if driver.Allocatable == nil || driver.Allocatable.Count == nil {
		return 0
	}
	return *driver.Allocatable.Count
}

// nodeDrivers are the entries of the object, by name. Those of drivers that are
// not registered are kept as they are if keep says so. An entry may change as a
// whole: in a cluster, that it may not makes a driver with another node ID fail
// once before it registers, and nothing else.
func nodeDrivers(before *storagev1.CSINode, nodes map[string]plugins.NodeInfo, keep bool) []storagev1.CSINodeDriver {
	var drivers []storagev1.CSINodeDriver
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		drivers = append(drivers, nodeDriver(name, nodes[name]))
	}
	if before != nil && keep {
		for _, driver := range before.Spec.Drivers {
			if _, known := nodes[driver.Name]; !known {
				drivers = append(drivers, driver)
			}
		}
	}
	slices.SortFunc(drivers, func(a, b storagev1.CSINodeDriver) int { return cmp.Compare(a.Name, b.Name) })
	return drivers
}

// nodeDriver is one entry: with a limit only if the driver sets one, and that bounded
// to the field's range (k/k pkg/volume/csi/nodeinfomanager).
func nodeDriver(name string, node plugins.NodeInfo) storagev1.CSINodeDriver {
	driver := storagev1.CSINodeDriver{Name: name, NodeID: node.ID, TopologyKeys: slices.Sorted(maps.Keys(node.Topology))}
	if node.MaxVolumes > 0 {
		count := int32(min(node.MaxVolumes, math.MaxInt32)) //nolint:gosec // it is bounded here
		driver.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return driver
}

// refresh asks the drivers that are due for their limit, and returns the time of the
// next refresh; zero is never.
func (p *nodePublisher) refresh(ctx context.Context, now time.Time) (next time.Time) {
	soonest := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if now.Before(p.until) {
		soonest(p.until)
	}
	registered := p.host.plugins.Names()
	maps.DeleteFunc(p.asked, func(name string, _ time.Time) bool { return !slices.Contains(registered, name) })
	for name, period := range p.periods() {
		if !slices.Contains(registered, name) {
			continue
		}
		last, known := p.asked[name]
		switch {
		case !known: // it was asked when it registered
			p.asked[name] = now
		case !now.Before(last.Add(period)):
			p.ask(ctx, name, now)
		}
		soonest(p.asked[name].Add(period))
	}
	return next
}

// periods returns how often each driver asks to be polled (nodeAllocatableUpdatePeriodSeconds).
func (p *nodePublisher) periods() map[string]time.Duration {
	periods := map[string]time.Duration{}
	err := p.host.store.View(func(tx *store.Tx) error {
		drivers, err := tx.Drivers().All()
		for _, driver := range drivers {
			if seconds := driver.Spec.NodeAllocatableUpdatePeriodSeconds; seconds != nil {
				periods[driver.Name] = max(shortestRefresh, time.Duration(min(*seconds, math.MaxInt32))*time.Second)
			}
		}
		return err
	})
	if err != nil {
		p.host.options.Logger.Error("the drivers' limits are not asked for", "error", err)
	}
	return periods
}

func (p *nodePublisher) ask(ctx context.Context, name string, now time.Time) {
	p.asked[name] = now
	p.running.Go(func() {
		err := p.host.plugins.Refresh(ctx, name)
		if err != nil && !errors.Is(err, plugins.ErrNotRegistered) && ctx.Err() == nil {
			p.host.options.Logger.Warn("cannot refresh the driver's limit of volumes", "driver", name, "error", err)
		}
	})
}

// fullUp asks a driver for its limit at once after it rejected a volume because the
// node is full, if it has a refresh period and was not asked recently.
func (p *nodePublisher) fullUp(ctx context.Context, name string) {
	last, known := p.asked[name]
	if _, desired := p.periods()[name]; desired && known && time.Since(last) >= shortestRefresh {
		p.ask(ctx, name, time.Now())
	}
}

// watchStore handles changes of CSIDriver objects, and attachments that failed
// because the node is full.
func (p *nodePublisher) watchStore(ctx context.Context) {
	var watch *store.Watch
	begin := func() error {
		return p.host.store.View(func(tx *store.Tx) error {
			watch = p.host.store.Watch(tx.Version())
			return nil
		})
	}
	if err := begin(); err != nil {
		p.host.options.Logger.Error("the store is not watched", "error", err)
		return
	}
	for {
		changes, err := watch.Next(ctx)
		if errors.Is(err, store.ErrExpired) {
			err = begin()
			changes = []store.Change{{}}
		}
		if err != nil {
			return
		}
		for _, name := range concerned(changes) {
			select {
			case p.full <- name:
			case <-ctx.Done():
				return
			}
		}
	}
}

// concerned lists what publishing has to know of changes.
func concerned(changes []store.Change) []string {
	names := map[string]bool{}
	for _, change := range changes {
		switch change.Kind.Kind {
		case "", "CSIDriver":
			names[""] = true
		case "VolumeAttachment":
			if object, err := change.Object(); err == nil {
				if attachment, ok := object.(*storagev1.VolumeAttachment); ok && isFull(attachment) {
					names[attachment.Spec.Attacher] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func isFull(attachment *storagev1.VolumeAttachment) bool {
	failure := attachment.Status.AttachError
	return failure != nil && failure.ErrorCode != nil && *failure.ErrorCode == resourceExhausted
}
