package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	kubeapi "github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/why/hostreader"
)

// Intervals of a host's source.
const (
	// driversEvery is how often drivers and pools are read without a change: nothing
	// notifies of a process that a host starts again.
	driversEvery = 5 * time.Second
	// driversRest is the shortest time between two reads.
	driversRest = 500 * time.Millisecond
	// journalRetry is how long after a broken connection the journal is read again.
	journalRetry = time.Second
)

// Host is the source of a host, by its API.
type Host struct {
	hostreader.Reader
	client  *api.Client
	machine string
	clients Clients
}

// NewHost makes the source of the host that the client talks to.
func NewHost(client *api.Client, machine string) (*Host, error) {
	config := &rest.Config{Host: "http://host", Transport: client.Transport(), UserAgent: "holdfast-status", QPS: -1}
	config.ContentType = runtime.ContentTypeJSON
	core, err := kubeapi.NewKubernetes(config)
	if err != nil {
		return nil, fmt.Errorf("the status page of a host: %w", err)
	}
	snapshots, err := kubeapi.NewSnapshots(config)
	if err != nil {
		return nil, fmt.Errorf("the status page of a host: %w", err)
	}
	return &Host{
		Reader: hostreader.New(client), client: client, machine: machine,
		clients: Clients{Core: core, Snapshots: snapshots},
	}, nil
}

// Name implements Source.
func (h *Host) Name() string { return "machine " + h.machine }

// HasJournal implements Source.
func (h *Host) HasJournal() bool { return true }

// kindJournal and kindRegistered are what a host has next to objects.
const (
	kindJournal    = "the journal"
	kindRegistered = "drivers"
)

func (h *Host) resources() []resource {
	return slices.DeleteFunc(h.clients.resources(), func(r resource) bool { return r.clusterOnly })
}

func (h *Host) kinds() []string { return append(kindsOf(h.resources()), kindJournal, kindRegistered) }

func kindsOf(resources []resource) (kinds []string) {
	for _, r := range resources {
		kinds = append(kinds, r.kind)
	}
	return kinds
}

func (h *Host) follow(ctx context.Context, into *Mirror) {
	var group sync.WaitGroup
	group.Go(func() { follow(ctx, h.resources(), into) })
	group.Go(func() { h.followJournal(ctx, into) })
	group.Go(func() { h.followDrivers(ctx, into) })
	group.Wait()
}

// followJournal reads the journal from its beginning, and then what is added.
func (h *Host) followJournal(ctx context.Context, into *Mirror) {
	var sequence uint64
	for ctx.Err() == nil {
		newest, err := h.client.JournalSequence(ctx)
		if err == nil && newest <= sequence {
			into.replace(kindJournal, nil)
		}
		if err == nil {
			err = h.client.WatchJournal(ctx, sequence, func(entry journal.Entry) error {
				into.record(entry)
				if sequence = entry.Sequence; sequence >= newest && !into.current(kindJournal) {
					into.replace(kindJournal, nil)
				}
				return nil
			})
		}
		if ctx.Err() == nil && err != nil && sequence == 0 {
			into.problem(kindJournal, fmt.Sprintf("the journal cannot be read: %v", err))
		}
		pause(ctx, journalRetry)
	}
}

// followDrivers reads drivers and pools after each change of an object, as the end of a
// driver's registration is one, and from time to time.
func (h *Host) followDrivers(ctx context.Context, into *Mirror) {
	for ctx.Err() == nil {
		changed := into.Changed()
		drivers, err := h.client.Drivers(ctx)
		switch {
		case err == nil:
			into.setDrivers(driversOfHost(drivers))
			// A host of an earlier version has no such call.
			if pools, err := h.client.Pools(ctx); err == nil {
				into.setPools(poolsOfHost(pools))
			}
			if !into.current(kindRegistered) {
				into.replace(kindRegistered, nil)
			}
		case ctx.Err() == nil:
			into.problem(kindRegistered, fmt.Sprintf("the drivers cannot be read: %v", err))
		}
		pause(ctx, driversRest)
		timer := time.NewTimer(driversEvery)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func pause(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Driver is a driver of a host, or of a cluster.
type Driver struct {
	Name string
	// State is such as registered. Registered means that it gets the calls, and Healthy that
	// it also answers.
	State               string
	Registered, Healthy bool
	Since               time.Time
	Version             string
	Error               string
	// Nodes is the number of a cluster's nodes that have it.
	Nodes    int
	Restarts int
	// Facts are for the driver's own page.
	Facts []Fact
}

// Fact is a word and its value. Link is the page of the object that the value names.
type Fact struct {
	Label, Value string
	Link         *Ref
}

func equalDrivers(a, b []Driver) bool {
	return slices.EqualFunc(a, b, func(a, b Driver) bool {
		same := slices.Equal(a.Facts, b.Facts)
		a.Facts, b.Facts = nil, nil
		return same && a.Name == b.Name && a.State == b.State && a.Registered == b.Registered && a.Healthy == b.Healthy && a.Since.Equal(b.Since) &&
			a.Version == b.Version && a.Error == b.Error && a.Nodes == b.Nodes && a.Restarts == b.Restarts
	})
}

func driversOfHost(known []api.Driver) []Driver {
	var drivers []Driver
	for _, driver := range known {
		drivers = append(drivers, driverOfHost(driver))
	}
	slices.SortFunc(drivers, func(a, b Driver) int { return strings.Compare(a.Name, b.Name) })
	return drivers
}

// driverOfHost describes a driver by the instance that serves, or by the last one.
func driverOfHost(driver api.Driver) Driver {
	d := Driver{Name: driver.Name, State: "not registered", Registered: driver.IsRegistered()}
	for _, instance := range driver.Instances {
		if d.Registered && !instance.Serving {
			continue
		}
		d.State, d.Healthy, d.Since = instance.State, instance.Serving && !instance.Unready, instance.Since
		d.Version, d.Error = instance.Version, instance.Error
		d.Facts = instanceFacts(instance)
	}
	if unit := driver.Unit; unit != nil {
		d.Name, d.Restarts = cmp.Or(d.Name, unit.File), unit.Restarts
		d.Error = cmp.Or(d.Error, unit.Error)
		if !d.Registered {
			d.State, d.Since = unit.State, unit.Since
		}
		d.Facts = append(d.Facts, facts("Unit", unit.File, "Process", unit.State, "Process ID", number(int64(unit.PID)),
			"Restarts", number(int64(unit.Restarts)))...)
	}
	return d
}

func instanceFacts(instance api.DriverInstance) []Fact {
	return facts("Version", instance.Version, "State", instance.State, "Error", instance.Error,
		"Warnings", strings.Join(instance.Warnings, "; "), "Node ID", instance.NodeID,
		"Most volumes", number(instance.MaxVolumes), "Failed registrations", number(int64(instance.Attempts)),
		"Capabilities", strings.Join(instance.Capabilities, ", "), "Socket", instance.Socket, "Endpoint", instance.Endpoint)
}

// facts pairs labels with values, and leaves out empty values.
func facts(words ...string) (all []Fact) {
	for pair := range slices.Chunk(words, 2) {
		if pair[1] != "" {
			all = append(all, Fact{Label: pair[0], Value: pair[1]})
		}
	}
	return all
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
