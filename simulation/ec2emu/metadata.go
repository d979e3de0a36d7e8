package ec2emu

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Headers of the instance metadata service, version 2.
const (
	tokenHeader = "X-Aws-Ec2-Metadata-Token" //nolint:gosec // a name, not a credential
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	longestTTL  = 21_600 // seconds
)

// running is the state of the instances that can send a request.
const running = "running"

// metadata is the service for one instance, or for the instance that sent the request.
type metadata struct {
	server *Server
	// instance returns the ID of the instance that sent a request; "" means none.
	instance func(*http.Request) string

	mu     sync.Mutex
	tokens map[string]token
}

type token struct {
	instance string
	until    time.Time
}

// Metadata is the instance metadata service of one instance.
func (s *Server) Metadata(instanceID string) http.Handler {
	return s.MetadataFor(func(*http.Request) string { return instanceID })
}

// MetadataFor is the instance metadata service for several instances:
// instance returns the ID of the one that sent a request, "" for none (404).
func (s *Server) MetadataFor(instance func(*http.Request) string) http.Handler {
	return &metadata{server: s, instance: instance, tokens: map[string]token{}}
}

// ServeMetadata serves a handler of Metadata or MetadataFor on the listener
// until ctx ends, and closes it.
func (s *Server) ServeMetadata(ctx context.Context, listener net.Listener, handler http.Handler) error {
	return serve(ctx, listener, handler, s.logger)
}

func (m *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	knobs := m.server.Knobs().Metadata
	if concurrency.Sleep(r.Context(), m.server.draw(knobs.Latency)) != nil {
		panic(http.ErrAbortHandler)
	}
	instance := m.instance(r)
	guest, err := m.server.world.Info(instance)
	switch {
	case knobs.Disabled:
		refuse(w, http.StatusForbidden)
	case err != nil || guest.State.Name != running:
		refuse(w, http.StatusNotFound)
	case r.URL.Path == "/latest/api/token":
		m.issue(w, r, instance, knobs)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuse(w, http.StatusMethodNotAllowed)
	case !m.allowed(r, instance, knobs):
		refuse(w, http.StatusUnauthorized)
	default:
		m.answer(w, r, guestTree(guest, m.server.world.Region(), m.server.world.Account(), m.server.now()))
	}
}

// issue answers PUT /latest/api/token. Without the TTL, or one outside 1 to
// 21600 seconds, it is 400; from behind a proxy (X-Forwarded-For) 403.
func (m *metadata) issue(w http.ResponseWriter, r *http.Request, instance string, knobs Metadata) {
	if r.Method != http.MethodPut {
		refuse(w, http.StatusMethodNotAllowed)
		return
	}
	switch knobs.HopLimit {
	case HopHang: // the packets of the answer do not reach the caller
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case HopRefuse:
		panic(http.ErrAbortHandler)
	}
	if r.Header.Get("X-Forwarded-For") != "" {
		refuse(w, http.StatusForbidden)
		return
	}
	seconds, err := strconv.Atoi(r.Header.Get(ttlHeader))
	if err != nil || seconds < 1 || seconds > longestTTL {
		refuse(w, http.StatusBadRequest)
		return
	}
	text := rand.Text()
	now := m.server.now()
	m.mu.Lock()
	for old, t := range m.tokens {
		if !now.Before(t.until) {
			delete(m.tokens, old)
		}
	}
	m.tokens[text] = token{instance: instance, until: now.Add(time.Duration(seconds) * time.Second)}
	m.mu.Unlock()
	w.Header().Set(ttlHeader, strconv.Itoa(seconds)) // the SDK fails without it
	plain(w, text)
}

// allowed reports whether the request has a valid token of the instance, or needs none.
func (m *metadata) allowed(r *http.Request, instance string, knobs Metadata) bool {
	text := r.Header.Get(tokenHeader)
	if text == "" {
		return !knobs.TokensRequired
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tokens[text]
	return ok && t.instance == instance && m.server.now().Before(t.until)
}

// answer looks the path up. For a folder it lists the entries, with a slash after those
// that are folders, as the service does.
func (m *metadata) answer(w http.ResponseWriter, r *http.Request, tree map[string]string) {
	path := strings.Trim(r.URL.Path, "/")
	if value, ok := tree[path]; ok {
		plain(w, value)
		return
	}
	names := map[string]bool{}
	for full := range tree {
		if below, ok := strings.CutPrefix(full, path+"/"); ok || path == "" {
			if path == "" {
				below = full
			}
			name, _, folder := strings.Cut(below, "/")
			if folder {
				name += "/"
			}
			names[name] = true
		}
	}
	if len(names) == 0 {
		refuse(w, http.StatusNotFound)
		return
	}
	plain(w, strings.Join(sortedKeys(names), "\n"))
}

func plain(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(text)) // a client that is gone needs no answer
}

func refuse(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }
