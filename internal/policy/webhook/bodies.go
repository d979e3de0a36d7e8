package webhook

import (
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyTime is how long the body of a review may take to arrive; an API server itself
	// waits for ten seconds by default.
	bodyTime = 10 * time.Second
	// mostBodies bounds the bytes of the bodies that arrive or are answered at once, and
	// mostOfHost those of one host, so that a client of the port that sends many large
	// bodies slowly excludes no API server.
	mostBodies = 64 << 20
	mostOfHost = 16 << 20
)

// bodies bounds the memory and the time of requests' bodies.
type bodies struct {
	mu     sync.Mutex
	all    int64
	byHost map[string]int64
}

// limit answers requests for which there is room. The others get 503, after which an API
// server follows its failurePolicy.
func (b *bodies) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := r.ContentLength
		if size < 0 || size > largest {
			size = largest // unknown, or too large: it is read up to there
		}
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if !b.reserve(host, size) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many reviews at once; repeat this one later", http.StatusServiceUnavailable)
			return
		}
		defer b.release(host, size)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // a test has no connection
		next.ServeHTTP(w, r)
	})
}

// reserve reserves the bytes of a body for a host. It reports whether there was room.
func (b *bodies) reserve(host string, size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all+size > mostBodies || b.byHost[host]+size > mostOfHost {
		return false
	}
	b.all += size
	b.byHost[host] += size
	return true
}

// release returns what reserve has reserved.
func (b *bodies) release(host string, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= size
	if b.byHost[host] -= size; b.byHost[host] == 0 {
		delete(b.byHost, host)
	}
}
