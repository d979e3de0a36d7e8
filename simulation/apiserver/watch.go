package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// event is a line of a watch.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
	text   []byte // the JSON of the object; nil if it was not encoded yet
	// unlike is set for an object that is not what its version made: a bookmark, or what has left
	// the watcher's selection.
	unlike bool
}

// write writes the line.
func (e event) write(w io.Writer) error {
	if e.text == nil {
		return json.NewEncoder(w).Encode(e)
	}
	line := make([]byte, 0, len(e.text)+len(e.Type)+len(`{"type":"","object":}`)+1)
	line = append(append(append(line, `{"type":"`...), e.Type...), `","object":`...)
	_, err := w.Write(append(append(line, e.text...), '}', '\n'))
	return err
}

type watcher struct {
	request Request
	stop    context.CancelFunc // ends the watch
	more    chan struct{}      // has a value when there are new events
	begun   bool               // the initial events were sent
	events  []event            // not sent yet; the server's mutex guards them
}

// watch streams what changes. The initial state is sent as events when asked
// for (sendInitialEvents), with the bookmark that ends it.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q Request) {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	own := &watcher{request: q, more: make(chan struct{}, 1), stop: stop}
	if !s.begin(own) {
		fail(w, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", q.since)))
		return
	}
	defer s.end(own)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := func() {}
	if f, ok := w.(http.Flusher); ok {
		flush = f.Flush
	}
	flush()
	for {
		select {
		case <-own.more:
			events, ended := s.due(ctx, own)
			for _, e := range events {
				if e.write(w) != nil {
					return
				}
			}
			flush()
			if ended {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Delivery is how much of its events a watcher gets now.
type Delivery struct {
	// Most is the number of events; 0 means all. The others follow with the next delivery.
	Most int
	// Break ends the watch in place of sending them.
	Break bool
}

// due removes the events that are to be sent now from the queue.
func (s *Server) due(ctx context.Context, own *watcher) (events []event, ended bool) {
	var d Delivery
	initial := own.request.initialEvents && !own.begun
	own.begun = true
	if s.deliver != nil && !initial {
		d = s.deliver(ctx, own.request)
	}
	if d.Break {
		return nil, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	count := len(own.events)
	if d.Most > 0 {
		count = min(count, d.Most)
	}
	events, own.events = own.events[:count:count], own.events[count:]
	for i := range events {
		if !events[i].unlike {
			events[i].text = s.texts[events[i].Object.version()]
		}
	}
	if len(own.events) > 0 {
		own.signal()
	}
	return events, false
}

func (w *watcher) signal() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *watcher) push(e event) {
	w.events = append(w.events, e)
	w.signal()
}

// begin replays the events that the watcher lacks, under the lock, so that nothing
// falls between the replay and the watch. It is false for a watch from before an
// object was removed or left the selection, of which nothing is kept to replay.
func (s *Server) begin(own *watcher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := own.request
	if s.history != nil && !q.initialEvents {
		return s.replay(own)
	}
	if !q.initialEvents && (q.since < s.removed || q.selector != "" && q.since < s.relabelled) {
		return false
	}
	for _, o := range s.stored[q.collection()] {
		if own.sees(o) && (q.initialEvents || o.version() > q.since) {
			own.push(event{Type: "ADDED", Object: o})
		}
	}
	if q.initialEvents {
		own.push(event{Type: "BOOKMARK", unlike: true, Object: object{
			"kind": kindOf(q.Resource), "apiVersion": groupVersion(q),
			"metadata": map[string]any{
				"resourceVersion": strconv.FormatUint(s.version, 10),
				"annotations":     map[string]any{"k8s.io/initial-events-end": "true"},
			},
		}})
	}
	s.watches[q.collection()] = append(s.watches[q.collection()], own)
	return true
}

func (s *Server) end(own *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	collection := own.request.collection()
	s.watches[collection] = slices.DeleteFunc(s.watches[collection], func(w *watcher) bool { return w == own })
}

func (w *watcher) sees(o object) bool { return w.request.selects(o) }

// notify sends an event to the watchers of a collection: for an object that enters a
// watcher's selection or leaves it, the event is ADDED or DELETED, as the API server's
// is. old is nil for a new object. The caller holds the lock.
func (s *Server) notify(collection, kind string, old, o object) {
	for _, w := range s.watches[collection] {
		w.add(kind, old, o)
	}
}

// add queues the event of a change, if the watcher sees one.
func (w *watcher) add(kind string, old, o object) {
	before, after := old != nil && w.sees(old), w.sees(o)
	switch {
	case kind != "MODIFIED" && after, before && after:
		w.push(event{Type: kind, Object: o})
	case kind == "DELETED": // it was never selected
	case after:
		w.push(event{Type: "ADDED", Object: o})
	case before:
		w.push(event{Type: "DELETED", Object: old.at(o.version()), unlike: true})
	}
}

// breakWatches ends every watch, as a restart of the API server does.
func (s *Server) breakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, watchers := range s.watches {
		for _, w := range watchers {
			w.stop()
		}
	}
	s.watches = map[string][]*watcher{}
}

// kindOf is the kind of a resource, as far as the tests' kinds go.
func kindOf(resource string) string {
	for _, kind := range []string{
		"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "VolumeAttachment", "CSINode", "Node",
		"VolumeAttributesClass", "CSIStorageCapacity", "VolumeSnapshot", "VolumeSnapshotContent", "VolumeSnapshotClass",
		"VolumeGroupSnapshot", "VolumeGroupSnapshotContent", "VolumeGroupSnapshotClass", "ConfigMap", "Secret", "Pod", "Lease",
	} {
		plural := strings.ToLower(kind) + "s"
		switch {
		case strings.HasSuffix(plural, "ss"):
			plural = strings.TrimSuffix(plural, "s") + "es"
		case strings.HasSuffix(plural, "citys"):
			plural = strings.TrimSuffix(plural, "ys") + "ies"
		}
		if plural == resource {
			return kind
		}
	}
	return ""
}
