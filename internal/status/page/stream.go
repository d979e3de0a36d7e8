package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	g "maragu.dev/gomponents"

	"github.com/holdfast-csi/holdfast/internal/status"
)

const (
	// pace is the shortest time between two drawings for one browser.
	pace = 200 * time.Millisecond
	// beat is how often something is sent, so that both sides notice a broken connection.
	beat = 15 * time.Second
	// writeLimit is how long a browser may take to read.
	writeLimit = 30 * time.Second
)

// stream sends what changes of a page as server-sent events.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		w.Header().Set("Retry-After", "30")
		refuse(w, http.StatusServiceUnavailable, "too many browsers are connected: reload the page to see changes")
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ending, cancel)() //nolint:contextcheck // it ends with the page, too
	view, release, err := h.live.Use(ctx)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, sentence(err.Error()))
		return
	}
	defer release()
	at := r.URL.Query().Get("at")
	if _, ok := screenAt(ctx, view, at); !ok {
		refuse(w, http.StatusNotFound, "there is no such page")
		return
	}
	_ = follow(ctx, newEvents(w), view, at, r.URL.Query().Get("digest")) // it ends with the connection
}

// follow draws the screen after each change, and when what it shows becomes old. The
// digest is of what the browser shows.
func follow(ctx context.Context, out *events, view status.View, at, digest string) error {
	var shown drawn
	for {
		changed := view.Changed()
		s, _ := screenAt(ctx, view, at)
		fragments := s.fragments()
		next := drawnOf(fragments)
		list := patches(shown, fragments)
		if shown == nil {
			if err := out.begin(); err != nil {
				return err
			}
			list = nil
			if next.digest() != digest {
				list = []patch{{Op: "replace", ID: "title", HTML: htmlOf(titleNode(s.title))}, {Op: "content", ID: "main", HTML: htmlOf(g.Group(s.nodes()))}}
			}
		}
		if err := out.patches(list); err != nil {
			return err
		}
		shown = next
		if err := waitFor(ctx, out, changed, s.every); err != nil {
			return err
		}
	}
}

// waitFor returns after a change, or when the screen is to be drawn again, and not sooner
// than pace.
func waitFor(ctx context.Context, out *events, changed <-chan struct{}, every time.Duration) error {
	rest, again, beats := time.NewTimer(pace), time.NewTimer(every), time.NewTicker(beat)
	defer rest.Stop()
	defer again.Stop()
	defer beats.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		select {
		case <-changed:
			return nil
		case <-again.C:
			return nil
		case <-beats.C:
			if err := out.send(": still here\n\n"); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// events writes server-sent events.
type events struct {
	writer  http.ResponseWriter
	control *http.ResponseController
}

func newEvents(w http.ResponseWriter) *events {
	return &events{writer: w, control: http.NewResponseController(w)}
}

// begin sends the headers, and the time after which a browser connects again.
func (e *events) begin() error {
	e.writer.Header().Set("Content-Type", "text/event-stream")
	e.writer.WriteHeader(http.StatusOK)
	return e.send("retry: 2000\n\n")
}

// patches sends changes as one event; none are none.
func (e *events) patches(list []patch) error {
	if len(list) == 0 {
		return nil
	}
	data, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode changes of the status page: %w", err)
	}
	return e.send("event: patch\ndata: " + strings.TrimSpace(string(data)) + "\n\n")
}

func (e *events) send(text string) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	if _, err := e.writer.Write([]byte(text)); err != nil {
		return err
	}
	return e.control.Flush()
}
