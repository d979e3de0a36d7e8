// Package page is the status page: HTML that this process renders, complete without
// JavaScript, with server-sent events that replace what changes. It answers GET and HEAD
// only, has all of its files in the program, and lets a browser load nothing from
// elsewhere.
package page

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/status"
)

//go:embed assets
var assets embed.FS

// syncLimit is how long a request waits until the objects are read.
const syncLimit = 10 * time.Second

// policy lets a browser use the page's own files, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// Options of a Handler.
type Options struct {
	Source status.Source
	Logger *slog.Logger
	// Token, if given, is required from every client.
	Token string
	// Hosts are the names by which browsers may address the page, without ports; none
	// means any. Loopback names are for pages that need no token: a page of another site
	// whose name leads to this machine is refused by its name.
	Hosts []string
	// Secure is set when the page is served with TLS.
	Secure bool
}

// Handler serves the page below Prefix. Close it.
type Handler struct {
	options Options
	live    *status.Live
	mux     *http.ServeMux
	assets  map[string]asset
	streams chan struct{}
	access  *access
	ending  context.Context // of the streams
	end     context.CancelFunc
}

type asset struct {
	content       []byte
	kind, version string
}

// mostStreams bounds the browsers that are kept current at the same time.
const mostStreams = 64

// New makes a Handler.
func New(options Options) (*Handler, error) {
	h := &Handler{
		options: options, live: status.NewLive(options.Source), mux: http.NewServeMux(), assets: map[string]asset{},
		streams: make(chan struct{}, mostStreams),
	}
	h.ending, h.end = context.WithCancel(context.Background())
	var err error
	if h.access, err = newAccess(options.Token, options.Secure); err != nil {
		return nil, err
	}
	for name, kind := range map[string]string{
		"status.css": "text/css; charset=utf-8", "status.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return nil, fmt.Errorf("the status page's file %s: %w", name, err)
		}
		hash := fnv.New64a()
		_, _ = hash.Write(content) // never fails
		h.assets[name] = asset{content, kind, strconv.FormatUint(hash.Sum64(), 36)}
	}
	h.mux.HandleFunc("GET "+Prefix+"assets/{name}", h.asset)
	h.mux.HandleFunc("GET "+Prefix+"live", h.stream)
	h.mux.HandleFunc("GET "+Prefix+"{at...}", h.page)
	h.mux.Handle("GET /{$}", http.RedirectHandler(Prefix, http.StatusFound))
	return h, nil
}

// Close ends the streams and the watches.
func (h *Handler) Close() {
	h.end()
	h.live.Close()
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A client that does not read must not keep a page, and the objects, for ever.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeLimit)) // a test has no connection
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	switch {
	case !h.mayAddress(r.Host):
		refuse(w, http.StatusForbidden, "the page is not served under the name "+strconv.Quote(r.Host))
	case h.access != nil && r.URL.Path == loginPath:
		h.access.login(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "the page only reads")
	case h.access != nil && !strings.HasPrefix(r.URL.Path, Prefix+"assets/") && !h.access.permits(r):
		h.access.ask(w, r)
	default:
		h.mux.ServeHTTP(w, r)
	}
}

// refuse answers with a sentence as text.
func refuse(w http.ResponseWriter, code int, text string) { http.Error(w, text, code) }

// asset serves a file of the page. Its address has its version.
func (h *Handler) asset(w http.ResponseWriter, r *http.Request) {
	file, ok := h.assets[r.PathValue("name")]
	if !ok {
		refuse(w, http.StatusNotFound, "no such file")
		return
	}
	w.Header().Set("Content-Type", file.kind)
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.content))
}

// page serves a whole page.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), syncLimit)
	defer cancel()
	view, release, err := h.live.Use(ctx)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, sentence(err.Error()))
		return
	}
	defer release()
	s, ok := screenAt(ctx, view, r.PathValue("at"))
	if !ok {
		refuse(w, http.StatusNotFound, "there is no such page")
		return
	}
	var text bytes.Buffer
	if err := h.document(r.PathValue("at"), view.Name(), s).Render(&text); err != nil {
		refuse(w, http.StatusInternalServerError, "the page cannot be rendered")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if s.missing {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write(text.Bytes()) // the client has gone
}

// screenAt is the screen of a path below Prefix.
func screenAt(ctx context.Context, view status.View, at string) (s screen, ok bool) {
	words := strings.Split(at, "/")
	if at != "" && path.Clean(at) != at {
		return screen{}, false
	}
	switch kind := words[0]; {
	case at == "":
		return overview(ctx, view), true
	case at == "volumes":
		return volumesScreen(view), true
	case at == "pods":
		return podsScreen(view), true
	case at == "snapshots":
		return snapshotsScreen(view), true
	case at == "drivers":
		return driversScreen(view), true
	case kind == status.Plugin && len(words) == 2:
		return driverScreen(view, words[1]), true
	case kind == status.Volume && len(words) == 2:
		return objectScreen(ctx, view, status.Ref{Kind: kind, Name: words[1]}), true
	case (kind == status.Claim || kind == status.Pod || kind == status.Snapshot) && len(words) == 3:
		return objectScreen(ctx, view, status.Ref{Kind: kind, Namespace: words[1], Name: words[2]}), true
	}
	return screen{}, false
}
