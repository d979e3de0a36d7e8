// Package volumeplugin serves a host's claims as the volumes of Docker and
// Podman: the volume plugin protocol of Docker
// (https://docs.docker.com/engine/extend/plugins_volume/) over a unix socket. A
// volume is a claim: its name is the claim's, in the namespace default, or
// NAMESPACE/NAME. Each Mount is its own hold. The store keeps it, so that restarts of
// the host and of the container engine lose nothing.
//
// An engine that gets an error from Unmount keeps the volume counted as mounted,
// and never mounts it again. So an Unmount succeeds as soon as the store has the
// hold's end: the protocol says that the engine does not use the volume any more,
// not that it is unmounted. The host continues to unmount a busy volume, and the
// next Mount gets a new hold and mount point.
package volumeplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/connlimit"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// contentType is the protocol's.
const contentType = "application/vnd.docker.plugins.v1.1+json"

// PodmanTimeout is the volume_plugin_timeout of containers.conf that the guide
// for Podman sets.
const PodmanTimeout = time.Minute

const (
	// maximumBody bounds a request.
	maximumBody = 1 << 20
	headerLimit = 10 * time.Second
	headerSize  = 64 << 10 // bytes
	// bodyLimit is the time in which a request arrives, idleLimit that between two.
	bodyLimit = 20 * time.Second
	idleLimit = 2 * time.Minute
	// callLimit is below an engine's time limit for a Mount, so that it gets the
	// reason: Docker two minutes, Podman PodmanTimeout.
	callLimit = PodmanTimeout - 10*time.Second
	// unmountWait is how long an Unmount waits for the volume to be unmounted,
	// below the 5 s that Podman waits for an answer (containers.conf,
	// volume_plugin_timeout).
	unmountWait = 2 * time.Second
	// drainLimit is how long calls in flight are waited for at the end.
	drainLimit = 10 * time.Second
)

// Host is the part of *host.Host that the plugin calls.
type Host interface {
	Apply(ctx context.Context, files []manifest.File, options api.ApplyOptions) (api.ApplyResult, error)
	DeleteObject(ctx context.Context, kind store.Kind, key string, options api.DeleteOptions) (api.Deleted, error)
	// AwaitGone waits until an object is gone. The error says why it is not.
	AwaitGone(ctx context.Context, kind store.Kind, key string, uid types.UID) error
	Hold(ctx context.Context, request api.HoldRequest) (api.HoldAnswer, error)
	Release(ctx context.Context, request api.ReleaseRequest) error
	// Held is the answer of a hold that is in place; false if there is none.
	Held(namespace, name string) (api.HoldAnswer, bool, error)
}

// Plugin serves the protocol.
type Plugin struct {
	Host   Host
	Store  *store.Store
	Logger *slog.Logger
	// mounts keeps the requests of one Mount apart: each chooses a hold by those
	// that exist.
	mounts concurrency.Queue
}

// request has the fields of every request of the protocol.
type request struct {
	Name string
	ID   string
	Opts map[string]string
}

// answer has the fields of every answer.
type answer struct {
	Mountpoint   string        `json:",omitempty"`
	Volume       *volume       `json:",omitempty"`
	Volumes      []volume      `json:",omitempty"`
	Capabilities *capabilities `json:",omitempty"`
	Implements   []string      `json:",omitempty"`
	Err          string
}

type volume struct {
	Name       string
	Mountpoint string            `json:",omitempty"`
	CreatedAt  string            `json:",omitempty"` // RFC 3339
	Status     map[string]string `json:",omitempty"`
}

// capabilities: a volume is this machine's.
type capabilities struct{ Scope string }

// Handler answers the protocol's calls.
func (p *Plugin) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, do := range map[string]func(context.Context, request) (answer, error){
		"/Plugin.Activate":           p.activate,
		"/VolumeDriver.Capabilities": p.capabilities,
		"/VolumeDriver.Create":       p.create,
		"/VolumeDriver.Remove":       p.remove,
		"/VolumeDriver.Mount":        p.mount,
		"/VolumeDriver.Unmount":      p.unmount,
		"/VolumeDriver.Path":         p.path,
		"/VolumeDriver.Get":          p.get,
		"/VolumeDriver.List":         p.list,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), callLimit)
			defer cancel()
			asked, err := decode(w, r)
			var answered answer
			if err == nil {
				answered, err = do(ctx, asked)
			}
			p.reply(ctx, w, path, asked, answered, err)
		})
	}
	return mux
}

// decode reads a request; some have no body. A client that sends a part of one must not
// keep the call.
func decode(w http.ResponseWriter, r *http.Request) (asked request, err error) {
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyLimit))
	defer func() { _ = deadline.SetReadDeadline(time.Time{}) }()
	err = json.NewDecoder(http.MaxBytesReader(w, r.Body, maximumBody)).Decode(&asked)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("the request is not understood: %w", err)
	}
	return asked, err
}

func (p *Plugin) reply(
	ctx context.Context, w http.ResponseWriter, path string, asked request, answered answer, err error,
) {
	w.Header().Set("Content-Type", contentType)
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, errNoVolume) {
			level = slog.LevelDebug // engines ask for a volume before they create it
		}
		p.Logger.Log(ctx, level, "a call of the volume plugin failed", "call", path, "volume", asked.Name,
			"id", asked.ID, "error", err)
		answered = answer{Err: err.Error()}
		w.WriteHeader(http.StatusInternalServerError)
	}
	_ = json.NewEncoder(w).Encode(answered) // the client may be gone
}

// Serve answers until the context ends, and then lets calls in flight end.
func (p *Plugin) Serve(ctx context.Context, listener net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: p.Handler(), ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit, MaxHeaderBytes: headerSize,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(connlimit.New(listener, connlimit.Limits{})) }()
	select {
	case err := <-ended:
		return fmt.Errorf("the volume plugin's socket: %w", err)
	case <-ctx.Done():
	}
	drain, stop := context.WithTimeout(base, drainLimit)
	defer stop()
	err := server.Shutdown(drain)
	cancel()
	_ = server.Close() // ends the calls that exceed the limit
	<-ended            //nolint:errcheck // it is that the server was shut down
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Plugin) activate(context.Context, request) (answer, error) {
	return answer{Implements: []string{"VolumeDriver"}}, nil
}

func (p *Plugin) capabilities(context.Context, request) (answer, error) {
	return answer{Capabilities: &capabilities{Scope: "local"}}, nil
}
