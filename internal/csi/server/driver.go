// Package server is the CSI door: the Identity, Controller, GroupController and
// Node services of CSI 1.13 over a unix socket. It translates between protobuf
// and the types of packages backend, guard and node, and it is the only package
// below the door that knows gRPC codes. What it never does: decide anything
// about storage.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/csi/operations"
	"github.com/holdfast-csi/holdfast/internal/csi/server/volumemodifier"
	"github.com/holdfast-csi/holdfast/internal/grpcserver"
	"github.com/holdfast-csi/holdfast/internal/node"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// Mode says which services a driver answers in addition to Identity.
type Mode string

// The modes of a driver.
const (
	All        Mode = "all"
	Controller Mode = "controller"
	Node       Mode = "node"
)

// Controls reports whether the Controller services are answered.
func (m Mode) Controls() bool { return m != Node }

// Serves reports whether the Node service is answered.
func (m Mode) Serves() bool { return m != Controller }

// Engine is the node engine (node.Engine), as far as the Node service needs it.
type Engine interface {
	Stage(ctx context.Context, request node.StageRequest) error
	Unstage(ctx context.Context, volumeID, stagingPath string) error
	Publish(ctx context.Context, request node.PublishRequest) error
	Unpublish(ctx context.Context, volumeID, targetPath string) error
	Stats(ctx context.Context, volumeID, volumePath, stagingPath string) (node.Stats, error)
	Expand(ctx context.Context, request node.ExpandRequest) (int64, error)
	Info(ctx context.Context) (backend.NodeInfo, error)
	VolumeHealth(ctx context.Context, volumeID, volumePath, stagingPath string) ([]backend.HealthProblem, error)
	StorageHealth(ctx context.Context) ([]backend.HealthProblem, error)
	Probe(ctx context.Context) error
}

// Options of a driver.
type Options struct {
	Mode Mode
	// Name is the CSI plugin name; the backend's own when empty.
	Name string
	// Version is the vendor_version of GetPluginInfo; not empty.
	Version string
	// Endpoint is the CSI socket, unix:///…/name.sock; see ParseEndpoint.
	Endpoint string
	// Traits and Features describe the backend. They are the same in every mode,
	// because the plugin capabilities must be (CSI spec 1.13, GetPluginCapabilities).
	Traits   backend.Traits
	Features guard.Features
	// Guard serves the controller half; unused in mode Node.
	Guard *guard.Guard
	// Engine serves the node half; unused in mode Controller.
	Engine Engine
	// NodeID is this machine's name in the log.
	NodeID string
	Logger *slog.Logger
	// Registerer receives the metrics; nil for none.
	Registerer prometheus.Registerer
	// Tracing makes spans of the calls; nil for none.
	Tracing trace.TracerProvider
	// Rest, if set, is called to release memory, ten seconds after the start and after
	// the last call that changes something.
	Rest func()
}

// Server is a driver that can serve its socket once.
type Server struct {
	log      *slog.Logger
	endpoint Endpoint
	grpc     *grpcserver.Server
	// ready is closed when the socket serves.
	ready    chan struct{}
	identity *identity
	options  Options
	chain    *interceptor

	drainTime, cancelTime time.Duration
}

// New builds a driver. It touches nothing outside the process before Run.
func New(o Options) (*Server, error) {
	if o.Name == "" {
		o.Name = o.Traits.DriverName
	}
	if err := check(o); err != nil {
		return nil, err
	}
	endpoint, err := ParseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	tracker := &progress.Tracker{}
	measured, err := newCallMetrics(o.Registerer, o.Name, tracker)
	if err != nil {
		return nil, err
	}
	log := o.Logger.With("component", "driver")
	chain := &interceptor{log: log, metrics: measured, driver: o.Name, node: o.NodeID, tracker: tracker}
	if o.Rest != nil {
		chain.rest = time.AfterFunc(restAfter, o.Rest)
	}
	s := &Server{
		log: log, endpoint: endpoint, grpc: newGRPC(chain, o.Tracing), ready: make(chan struct{}), options: o, chain: chain,
		identity: &identity{options: o}, drainTime: defaultDrainTime, cancelTime: defaultCancelTime,
	}
	s.Register(s.grpc)
	return s, nil
}

// Register adds the driver's services to another server, or to a connection
// within the process. Calls must pass Intercept.
func (s *Server) Register(registrar grpc.ServiceRegistrar) {
	o := s.options
	csi.RegisterIdentityServer(registrar, s.identity)
	operations.RegisterOperationsServer(registrar, &operationLister{tracker: s.chain.tracker})
	if o.Mode.Controls() {
		csi.RegisterControllerServer(registrar, &controller{guard: o.Guard, traits: o.Traits, features: o.Features})
		if o.Features.Groups {
			csi.RegisterGroupControllerServer(registrar, &groupController{guard: o.Guard})
		}
		if o.Features.Modify {
			volumemodifier.RegisterModifyServer(registrar, &modifier{guard: o.Guard})
		}
	}
	if o.Mode.Serves() {
		csi.RegisterNodeServer(registrar, &nodeServer{engine: o.Engine, traits: o.Traits, features: o.Features})
	}
}

// Intercept wraps every call, over a socket or not: it checks limits, turns the error
// into a status, logs and measures.
func (s *Server) Intercept(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	return s.chain.unary(ctx, request, info, handler)
}

// pluginName is CSI's rule for names, which is also within Kubernetes' rule for
// the name of a CSIDriver object once it is in lower case.
var pluginName = regexp.MustCompile(`^[a-zA-Z0-9]([-.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)

func check(o Options) error {
	switch {
	case o.Mode != All && o.Mode != Controller && o.Mode != Node:
		return fmt.Errorf("mode %q is none of all, controller, node", o.Mode)
	case !pluginName.MatchString(o.Name):
		return fmt.Errorf("driver name %q: CSI wants at most 63 letters, digits, '-' and '.', with a letter or digit at "+
			"both ends", o.Name)
	case o.Version == "":
		return errors.New("a driver without a version is refused by Kubernetes")
	case o.Logger == nil:
		return errors.New("a driver needs a logger")
	case o.Mode.Controls() && o.Guard == nil:
		return fmt.Errorf("mode %s needs the controller half of a backend", o.Mode)
	case o.Mode.Serves() && o.Engine == nil:
		return fmt.Errorf("mode %s needs a node engine", o.Mode)
	}
	return nil
}
