//go:build kubernetes

package faults

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// fault is the fault of one request; the zero value is none.
type fault struct {
	delay time.Duration
	// status replaces the API server's answer, with after as Retry-After.
	status int
	after  time.Duration
	// lost forwards the request and closes the connection instead of answering.
	lost bool
	// drop closes the connection before the request is forwarded.
	drop bool
}

// proxy forwards requests of a process to the API server and injects faults.
type proxy struct {
	server *httptest.Server
	target *httputil.ReverseProxy

	mu      sync.Mutex
	rule    func(*http.Request) fault
	watches map[int]context.CancelFunc
	next    int
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	transport, err := rest.TransportFor(shared)
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(shared.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{watches: map[int]context.CancelFunc{}}
	p.target = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(host) },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.Start()
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// kubeconfig writes a kubeconfig with the address of the proxy and returns its path.
func (p *proxy) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// set sets the rule for all requests from now on; nil removes it.
func (p *proxy) set(rule func(*http.Request) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

func (p *proxy) of(r *http.Request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rule == nil {
		return fault{}
	}
	return p.rule(r)
}

// breakWatches closes all open watches and returns their number.
func (p *proxy) breakWatches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.watches {
		cancel()
	}
	return len(p.watches)
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := p.of(r)
	time.Sleep(m.delay)
	switch {
	case m.drop:
		panic(http.ErrAbortHandler)
	case m.status != 0:
		refuse(w, m)
	case m.lost:
		p.target.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case isWatch(r):
		p.watch(w, r)
	default:
		p.target.ServeHTTP(w, r)
	}
}

func (p *proxy) watch(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p.mu.Lock()
	id := p.next
	p.next++
	p.watches[id] = cancel
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, id)
	}()
	p.target.ServeHTTP(w, r.WithContext(ctx))
}

// refuse answers with a status, in the API server's form.
func refuse(w http.ResponseWriter, m fault) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(m.status), Message: "a fault of the test", //nolint:gosec // an HTTP status has three digits
	}
	switch m.status {
	case http.StatusConflict:
		status.Reason = metav1.StatusReasonConflict
	case http.StatusTooManyRequests:
		status.Reason = metav1.StatusReasonTooManyRequests
	case http.StatusInternalServerError:
		status.Reason = metav1.StatusReasonInternalError
	case http.StatusServiceUnavailable:
		status.Reason = metav1.StatusReasonServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	if m.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(m.after.Seconds())))
	}
	w.WriteHeader(m.status)
	_ = json.NewEncoder(w).Encode(status)
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

// about reports whether a request is for a resource, such as persistentvolumes.
func about(r *http.Request, resource string) bool {
	return strings.Contains(r.URL.Path+"/", "/"+resource+"/")
}

// some injects a fault into one in n matching requests, at random: a fixed period could
// hit the same write of each of a controller's retries. The first request always gets
// the fault.
func some(n int, m fault, matches func(*http.Request) bool) func(*http.Request) fault {
	chance := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	first := true
	return func(r *http.Request) fault { // called with the proxy's lock
		if !matches(r) || (!first && chance.IntN(n) != 0) {
			return fault{}
		}
		first = false
		return m
	}
}
