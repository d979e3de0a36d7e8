// Package onhost lets package why ask a running host.
package onhost

import (
	"context"
	"net/http"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// Reader reads a host's objects, its journal and where its work stands.
type Reader struct {
	why.REST
	client *api.Client
}

// New makes a Reader; the client stays the caller's.
func New(client *api.Client) Reader {
	return Reader{REST: why.REST{Base: "http://host", Client: &http.Client{Transport: client.Transport()}}, client: client}
}

// Registered implements why.Host.
func (r Reader) Registered(ctx context.Context) ([]string, error) {
	drivers, err := r.client.Drivers(ctx)
	var names []string
	for _, driver := range drivers {
		if slices.ContainsFunc(driver.Instances, func(i api.DriverInstance) bool { return i.Serving }) {
			names = append(names, driver.Name)
		}
	}
	return names, err
}

// Mounts implements why.Host.
func (r Reader) Mounts(ctx context.Context, pod string) ([]why.Mount, error) {
	mounts, err := r.client.Mounts(ctx, pod)
	var found []why.Mount
	for _, mount := range mounts {
		found = append(found, why.Mount(mount))
	}
	return found, err
}

// Calls implements why.Host: what failed last or did not end, of each step, and
// else what a controller says that it failed with.
func (r Reader) Calls(ctx context.Context, kind, key string) ([]why.Call, error) {
	story, err := r.client.Journal(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	calls := open(story.Steps)
	if len(calls) > 0 {
		return calls, nil
	}
	for _, known := range store.Kinds() {
		if known.Kind != kind {
			continue
		}
		states, err := r.client.State(ctx, known, key)
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			if state.LastError != "" || state.Running {
				calls = append(calls, why.Call{Step: state.Controller, Error: state.LastError, Attempts: state.Attempts, Running: state.Running, Since: state.Since, Next: state.Next})
			}
		}
	}
	return calls, nil
}

// open are the steps whose last word is not that they are done; a volume's
// later step says that its earlier ones are over.
func open(steps []journal.StepEntry) (calls []why.Call) {
	last := map[string]int{}
	for i, step := range steps {
		last[step.Volume+" "+step.Handle] = i
	}
	for i, step := range steps {
		if last[step.Volume+" "+step.Handle] != i || step.Status == journal.Done {
			continue
		}
		since := step.First
		if since.IsZero() {
			since = step.Started
		}
		calls = append(calls, why.Call{
			Step: step.Step, Code: step.Code, Error: step.Error, Driver: step.Driver, Attempts: max(step.Attempts, step.Count),
			Running: step.Status == journal.Started, Since: since,
		})
	}
	return calls
}
