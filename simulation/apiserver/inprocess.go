package apiserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// ErrConnection is for reactions: the client gets no answer, as when the connection breaks.
var ErrConnection = errors.New("the connection to the API server broke")

// Change is a change of an object.
type Change struct {
	Request
	Event  string // ADDED, MODIFIED or DELETED
	Object map[string]any
	Text   []byte // the JSON of the object
}

// Hooks are what a world does in an API server. All are optional.
type Hooks struct {
	// Before is called before a request is served, and After when it had its effect. An
	// error is the answer; with ErrConnection there is none. Both may wait.
	Before, After func(*Request) error
	// Observe is called for each change, in order. It must not call the server.
	Observe func(Change)
	// Deliver is called when a watcher has events after the initial ones, and may wait. ctx ends with the watch.
	Deliver func(ctx context.Context, q Request) Delivery
	// Stale returns how many changes behind the answer to a read from the API server's cache
	// is (resourceVersion=0).
	Stale func(Request) uint64
}

// NewServer makes an API server for callers of the same process, which keeps the history of
// its objects. It runs in virtual time (testing/synctest), too. The scheme has the kinds of
// the objects that Put and Remove take.
func NewServer(known *runtime.Scheme, hooks Hooks) *Server {
	s := newServer(context.Background())
	s.known, s.history, s.texts = known, &history{}, map[uint64][]byte{}
	s.observe, s.deliver, s.stale = hooks.Observe, hooks.Deliver, hooks.Stale
	s.before, s.after = hooks.Before, hooks.After
	return s
}

// Config is that of the clients of a process, whose name is Request.Process.
func (s *Server) Config(process string) *rest.Config {
	return &rest.Config{
		Host: "http://apiserver", QPS: -1, UserAgent: processAgent + process, Transport: transport{s},
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	}
}

// Skew sets how far the server's clock is ahead of the processes'.
func (s *Server) Skew(skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = skew
}

// now is the time on the server's clock.
func (s *Server) now() string { return time.Now().Add(s.skew).UTC().Format(time.RFC3339) }

// BreakWatches ends the watches of a process, or all for "*".
func (s *Server) BreakWatches(process string) {
	s.endWatches(func(q Request) bool { return process == "*" || q.Process == process })
}

// BreakWatchesOf ends the watches of a resource. What they have not sent yet is lost.
func (s *Server) BreakWatchesOf(resource string) {
	s.endWatches(func(q Request) bool { return q.Resource == resource })
}

func (s *Server) endWatches(which func(Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for collection, watchers := range s.watches {
		s.watches[collection] = slices.DeleteFunc(watchers, func(w *watcher) bool {
			ends := which(w.request)
			if ends {
				w.stop()
			}
			return ends
		})
	}
}

// transport serves requests by function calls.
type transport struct{ server *Server }

// callerKey is the key of the context of a request's caller.
type callerKey struct{}

// Left reports whether the caller of a request does not wait for the answer any more.
func (r Request) Left() bool { return r.caller != nil && r.caller.Err() != nil }

// RoundTrip implements http.RoundTripper. A caller that leaves does not end a request that
// was sent: it may still have its effect.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	watching, stop := context.WithCancel(context.WithValue(context.Background(), callerKey{}, r.Context()))
	a := &answer{header: http.Header{}, started: make(chan struct{}), stop: stop}
	sent := r.Clone(watching)
	if r.Body == nil {
		sent.Body = http.NoBody
	}
	go func() {
		defer a.end()
		t.server.ServeHTTP(a, sent)
	}()
	select {
	case <-a.started:
		return a.response(r)
	case <-r.Context().Done():
		if strings.Contains(r.URL.RawQuery, "watch=") {
			stop()
		}
		return nil, r.Context().Err()
	}
}

// answer is the http.ResponseWriter of a request: it is complete at its end, or when it is
// flushed, from when on it is a stream.
type answer struct {
	header  http.Header
	status  int
	body    bytes.Buffer
	stream  *io.PipeWriter
	reader  io.ReadCloser
	started chan struct{}
	once    sync.Once
	stop    context.CancelFunc
	err     error
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(text []byte) (int, error) {
	if a.stream != nil {
		return a.stream.Write(text)
	}
	return a.body.Write(text)
}

// Flush begins a stream.
func (a *answer) Flush() {
	if a.stream == nil {
		a.reader, a.stream = io.Pipe()
		a.begin()
	}
}

func (a *answer) begin() { a.once.Do(func() { close(a.started) }) }

func (a *answer) abort(err error) { a.err = err }

func (a *answer) end() {
	if a.stream != nil {
		_ = a.stream.Close() // never fails
	}
	a.begin()
}

func (a *answer) response(r *http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	body := a.reader
	if body == nil {
		body = io.NopCloser(&a.body)
	}
	return &http.Response{
		StatusCode: a.status, Status: http.StatusText(a.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: closing{ReadCloser: body, stop: a.stop}, ContentLength: -1, Request: r,
	}, nil
}

// closing ends a watch when its client closes the body.
type closing struct {
	io.ReadCloser
	stop context.CancelFunc
}

func (c closing) Close() error {
	c.stop()
	return c.ReadCloser.Close()
}
