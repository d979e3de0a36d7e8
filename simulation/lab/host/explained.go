package host

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// explained returns an error if 'holdfast why' has no finding about an object that is not
// as it should be.
func (w *world) explained(kind, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	report, err := why.Ask(context.Background(), hostReader{w}, why.Subject{Kind: kind, Namespace: namespace, Name: name})
	if err != nil {
		return fmt.Errorf("why %s %s: %w", kind, key, err)
	}
	if len(report.Findings) == 0 {
		return fmt.Errorf("%s %s is stuck, and nothing explains it", kind, key)
	}
	return nil
}

// reasons are what 'holdfast why' finds, for the description of a failure.
func (w *world) reasons(kind, key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	report, err := why.Ask(context.Background(), hostReader{w}, why.Subject{Kind: kind, Namespace: namespace, Name: name})
	if err != nil {
		return err.Error()
	}
	var text []string
	for _, found := range report.Findings {
		text = append(text, strings.TrimSuffix(found.What+": "+found.Error, ": "))
	}
	return "[" + strings.Join(text, "; ") + "]"
}

// hostReader reads the host for why, without a socket.
type hostReader struct{ w *world }

func resourceOf(kind why.Kind) string {
	parts := strings.Split(string(kind), "/")
	return parts[len(parts)-2]
}

// Get implements why.Reader.
func (r hostReader) Get(_ context.Context, kind why.Kind, namespace, name string) ([]byte, error) {
	key := name
	if namespace != "" {
		key = store.Key(namespace, name)
	}
	object := r.w.objects.byKey[resourceOf(kind)+" "+key]
	if object == nil {
		return nil, why.ErrNotFound
	}
	return json.Marshal(object)
}

// List implements why.Reader.
func (r hostReader) List(_ context.Context, kind why.Kind, namespace, _ string) (all []json.RawMessage, err error) {
	for _, object := range list[store.Object](r.w.objects) {
		of, known := store.KindOf(resourceOf(kind))
		if !known || fmt.Sprintf("%T", object) != fmt.Sprintf("%T", of.New()) || namespace != "" && object.GetNamespace() != namespace {
			continue
		}
		data, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// Calls implements why.Host, with the last errors of the controllers.
func (r hostReader) Calls(_ context.Context, kind, key string) (calls []why.Call, err error) {
	for _, known := range store.Kinds() {
		if known.Kind != kind {
			continue
		}
		for _, state := range r.w.host.host.State(known, key) {
			calls = append(calls, why.Call{Step: state.Controller, Error: state.LastError, Attempts: state.Attempts,
				Running: state.Running, Since: state.Since, Next: state.Next})
		}
	}
	return calls, nil
}

// Registered implements why.Host.
func (r hostReader) Registered(context.Context) ([]string, error) {
	if len(r.w.instances) == 0 {
		return nil, nil
	}
	return []string{driverName}, nil
}

// Mounts implements why.Host.
func (r hostReader) Mounts(ctx context.Context, pod string) (found []why.Mount, err error) {
	mounts, err := r.w.host.host.Mounts(ctx, pod)
	for _, mount := range mounts {
		found = append(found, why.Mount(mount))
	}
	return found, err
}
