package cluster

import (
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// Clients are the connections to the API server. Leases and events have their
// own, so that neither a storm of work delays the renewal of a lease nor a
// storm of events delays work.
type Clients struct {
	Core           api.Kubernetes
	Snapshots      api.Snapshots
	Gateway        api.Gateway
	Leases, Events api.Kubernetes
}

// Connect reads a kubeconfig file, or a pod's service account if the path is empty. The
// clients have no rate limit: the API server limits them (API Priority and Fairness),
// and client-go honours its 429 answers. Wraps may observe the requests (Measured).
func Connect(kubeconfig, userAgent string, wraps ...transport.WrapperFunc) (Clients, error) {
	config, err := Config(kubeconfig)
	if err != nil {
		return Clients{}, err
	}
	return NewClients(config, userAgent, wraps...)
}

// Config returns the configuration of a kubeconfig file, or of a pod's service account
// if the path is empty.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no kubeconfig is given (--kubeconfig), and this process is not in a pod with a service account: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", kubeconfig, err)
	}
	return config, nil
}

// NewClients makes the clients of a configuration. Wraps may observe the requests.
func NewClients(config *rest.Config, userAgent string, wraps ...transport.WrapperFunc) (clients Clients, err error) {
	config = rest.CopyConfig(config)
	for _, wrap := range wraps {
		config.Wrap(wrap)
	}
	if clients.Core, err = api.NewKubernetes(derive(config, userAgent, runtime.ContentTypeProtobuf)); err != nil {
		return Clients{}, fmt.Errorf("connect to the API server: %w", err)
	}
	if clients.Leases, err = api.NewKubernetes(derive(config, userAgent+"/lease", runtime.ContentTypeProtobuf)); err != nil {
		return Clients{}, fmt.Errorf("connect to the API server for leases: %w", err)
	}
	if clients.Events, err = api.NewKubernetes(derive(config, userAgent+"/events", runtime.ContentTypeProtobuf)); err != nil {
		return Clients{}, fmt.Errorf("connect to the API server for events: %w", err)
	}
	// Custom resources are served as JSON only.
	if clients.Snapshots, err = api.NewSnapshots(derive(config, userAgent, runtime.ContentTypeJSON)); err != nil {
		return Clients{}, fmt.Errorf("connect to the API server for snapshots: %w", err)
	}
	if clients.Gateway, err = api.NewGateway(derive(config, userAgent, runtime.ContentTypeJSON)); err != nil {
		return Clients{}, fmt.Errorf("connect to the API server for ReferenceGrants: %w", err)
	}
	return clients, nil
}

// derive returns a configuration with a separate connection: client-go shares one
// between configurations that have the same dialer.
func derive(config *rest.Config, userAgent, content string) *rest.Config {
	own := rest.CopyConfig(config)
	own.UserAgent = userAgent
	own.QPS, own.Burst, own.RateLimiter = -1, 0, nil
	own.ContentType = content
	own.AcceptContentTypes = content + "," + runtime.ContentTypeJSON
	own.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	return own
}
