package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// stream writes one answer in parts. It closes the connection of a client that does
// not read in time.
type stream struct {
	writer  http.ResponseWriter
	control *http.ResponseController
	started bool
}

func newStream(w http.ResponseWriter, contentType string) *stream {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache")
	return &stream{writer: w, control: http.NewResponseController(w)}
}

// Write sends at once.
func (s *stream) Write(data []byte) (int, error) {
	s.started = true
	if err := s.control.SetWriteDeadline(timeout(writeLimit)); err != nil {
		return 0, err
	}
	written, err := s.writer.Write(data)
	if err != nil {
		return written, err
	}
	return written, s.control.Flush()
}

// watcher is one watch of objects.
type watcher struct {
	desired filter
	out     *stream
	// known has the keys that were sent to the client: true for an object that
	// matches, false for one that does not, since an object may get or lose a label.
	// It is nil without a label selector.
	known map[string]bool
}

// watch sends changes of objects until the client leaves. Without a resourceVersion,
// it sends the existing objects first (the semantics are those of the Kubernetes API).
func (s *Server) watch(w http.ResponseWriter, r *http.Request, kind store.Kind, desired filter) error {
	query := r.URL.Query()
	from := s.source(kind)
	watching := &watcher{desired: desired}
	if !desired.labels.Empty() {
		watching.known = map[string]bool{}
	}
	version, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if err != nil && query.Get("resourceVersion") != "" {
		return badRequest("resourceVersion %q is not a version", query.Get("resourceVersion"))
	}
	var first []change
	initial := version == 0 || query.Get("sendInitialEvents") == "true"
	if initial {
		if first, version, err = watching.begin(from); err != nil {
			return err
		}
	}
	if query.Get("sendInitialEvents") == "true" {
		first = append(first, change{verb: watch.Bookmark, object: bookmark(kind, version)})
	}
	ctx, cancel := s.long(r)
	defer cancel()
	next := from.follow(version)
	if !initial {
		if err := expired(ctx, next); err != nil {
			return err
		}
		next = from.follow(version)
	}
	watching.out = newStream(w, "application/json")
	w.WriteHeader(http.StatusOK)
	if err = watching.out.control.Flush(); err == nil {
		err = watching.run(ctx, first, next)
	}
	if err != nil && ctx.Err() == nil {
		watching.fail(err)
	}
	return nil
}

// expired returns an error if the version is too old, before the answer begins.
func expired(ctx context.Context, next func(context.Context) ([]change, error)) error {
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := next(over); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// begin lists the existing objects.
func (w *watcher) begin(from source) ([]change, uint64, error) {
	items, version, err := from.list(w.desired)
	first := make([]change, 0, len(items))
	for _, object := range items {
		first = append(first, change{verb: watch.Added, key: store.KeyOf(object), object: object})
		if w.known != nil {
			w.known[store.KeyOf(object)] = true
		}
	}
	return first, version, err
}

// bookmark marks the end of the existing objects (KEP-3157).
func bookmark(kind store.Kind, version uint64) store.Object {
	object := kind.New()
	object.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	object.SetResourceVersion(strconv.FormatUint(version, 10))
	object.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return object
}

func (w *watcher) run(ctx context.Context, changes []change, next func(context.Context) ([]change, error)) error {
	if err := w.send(changes); err != nil {
		return err
	}
	for {
		changes, err := next(ctx)
		if err != nil {
			return err
		}
		desired := changes[:0]
		for _, one := range changes {
			if w.desired.selectsKey(one.object) && w.see(&one) {
				desired = append(desired, one)
			}
		}
		if err := w.send(desired); err != nil {
			return err
		}
	}
}

// see decides whether a change is sent to the client, and as what: for the client, an
// object is added when its labels begin to match and deleted when they cease to.
func (w *watcher) see(c *change) bool {
	if w.known == nil {
		return true
	}
	was, known := w.known[c.key]
	fits := w.desired.matches(c.object)
	switch {
	case c.verb == watch.Deleted:
		delete(w.known, c.key)
		return was || !known && fits
	case fits:
		if known && !was {
			c.verb = watch.Added
		}
		w.known[c.key] = true
		return true
	}
	// The client may have an object from before the watch: its deletion is sent once.
	w.known[c.key] = false
	created := c.verb == watch.Added
	c.verb = watch.Deleted
	return was || !known && !created
}

// send writes many changes at once.
func (w *watcher) send(changes []change) error {
	var lines []byte
	for _, one := range changes {
		line, err := one.line()
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
		if len(lines) > 256<<10 {
			if _, err := w.out.Write(lines); err != nil {
				return err
			}
			lines = lines[:0]
		}
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := w.out.Write(lines)
	return err
}

// fail writes the last line of a watch that cannot continue.
func (w *watcher) fail(err error) {
	status := statusOf(err)
	line, err := json.Marshal(frame{Type: watch.Error, Object: &status})
	if err == nil {
		_, _ = w.out.Write(append(line, '\n')) // the client has gone
	}
}
