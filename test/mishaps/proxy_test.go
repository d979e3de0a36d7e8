//go:build kubernetes

package mishaps

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

// mishap is what becomes of one request; the zero value means nothing.
type mishap struct {
	delay time.Duration
	// status is an answer in place of the API server's, with after as Retry-After.
	status int
	after  time.Duration
	// lost forwards the request and cuts the connection in place of the answer.
	lost bool
	// cut cuts the connection before anything is forwarded.
	cut bool
}

// proxy is between a process and the API server.
type proxy struct {
	server *httptest.Server
	target *httputil.ReverseProxy

	mu      sync.Mutex
	rule    func(*http.Request) mishap
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

// kubeconfig is a file that leads through the proxy.
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

// set makes a rule for all requests from now on; nil ends it.
func (p *proxy) set(rule func(*http.Request) mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

func (p *proxy) of(r *http.Request) mishap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rule == nil {
		return mishap{}
	}
	return p.rule(r)
}

// breakWatches cuts the watches there are, and says how many that were.
func (p *proxy) breakWatches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cut := range p.watches {
		cut()
	}
	return len(p.watches)
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := p.of(r)
	time.Sleep(m.delay)
	switch {
	case m.cut:
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
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	p.mu.Lock()
	id := p.next
	p.next++
	p.watches[id] = cut
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, id)
	}()
	p.target.ServeHTTP(w, r.WithContext(ctx))
}

// refuse answers as the API server does.
func refuse(w http.ResponseWriter, m mishap) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(m.status), Message: "a mishap of the test", //nolint:gosec // three digits
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

// about tells whether a request is about a resource, such as persistentvolumes.
func about(r *http.Request, resource string) bool {
	return strings.Contains(r.URL.Path+"/", "/"+resource+"/")
}

// some makes a mishap of one in n requests that match, by chance: what counts
// in step with a controller's tries would fail the same write of each. The
// first one is always hit.
func some(n int, m mishap, matches func(*http.Request) bool) func(*http.Request) mishap {
	chance := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	first := true
	return func(r *http.Request) mishap { // called with the proxy's lock
		if !matches(r) || (!first && chance.IntN(n) != 0) {
			return mishap{}
		}
		first = false
		return m
	}
}
