// Package hostreader reads what why asks of a host: its objects, its journal, and the
// states of its controllers.
package hostreader

import (
	"context"
	"net/http"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// Reader is a why.Reader and a why.Host by the API of a host.
type Reader struct {
	why.REST
	client *api.Client
}

// New makes a Reader of the host that the client talks to.
func New(client *api.Client) Reader {
	return Reader{REST: why.REST{Base: "http://host",
		Client: &http.Client{Transport: client.Transport()}}, client: client}
}

// Registered implements why.Host.
func (r Reader) Registered(ctx context.Context) ([]string, error) {
	drivers, err := r.client.Drivers(ctx)
	var names []string
	for _, driver := range drivers {
		if driver.IsRegistered() {
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

// Calls implements why.Host. It returns the steps that failed last or did not end; if
// there are none, the last errors of the controllers.
func (r Reader) Calls(ctx context.Context, kind, key string) ([]why.Call, error) {
	story, err := r.client.Journal(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	if calls := Unfinished(story.Steps); len(calls) > 0 {
		return calls, nil
	}
	return r.Work(ctx, kind, key)
}

// Work returns what the host's controllers do for an object, and their last errors.
func (r Reader) Work(ctx context.Context, kind, key string) (calls []why.Call, err error) {
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
				calls = append(calls, why.Call{Step: state.Controller, Error: state.LastError, Attempts: state.Attempts,
					Running: state.Running, Since: state.Since, Next: state.Next})
			}
		}
	}
	return calls, nil
}

// Unfinished returns the last step of each volume unless it is done: a later step
// means that the earlier ones of the volume have ended.
func Unfinished(steps []journal.StepEntry) (calls []why.Call) {
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
		far := ""
		if step.Progress != nil {
			far = step.Progress.String()
		}
		calls = append(calls, why.Call{
			Progress: far,
			Step:     step.Step, Code: step.Code, Error: step.Error, Driver: step.Driver, Attempts: max(step.Attempts, step.Count),
			Running: step.Status == journal.Started, Since: since,
		})
	}
	return calls
}
