package cli

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/nodelabel"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// namespaceFile is where a pod reads its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// longestVolumeName is CSI's limit for names, in bytes (CSI spec 1.13, "Size Limits").
const longestVolumeName = 128

// kubeFlags are the flags of the Kubernetes controllers, which the commands
// driver and sidecars share.
type kubeFlags struct {
	kubeconfig, namespace, intents, pod, podUID, node string
	roles                                             []string
	elect                                             bool
	limits                                            kube.Limits
	tuning                                            kube.Tuning
	lease                                             lease.Options
}

func (k *kubeFlags) bind(flags *pflag.FlagSet) {
	k.bindProcess(flags)
	flags.StringVar(&k.node, "node-name", cmp.Or(os.Getenv("NODE_NAME"), os.Getenv("CSI_NODE_NAME")),
		"`NAME` of this process's Node object (default $NODE_NAME, $CSI_NODE_NAME)")
	flags.StringSliceVar(&k.roles, "controllers", nil,
		"controllers to run, as far as the driver can: "+roleNames()+" (default: all)")
	flags.BoolVar(&k.elect, "leader-election", true,
		"let one of several processes act, chosen by a lease; "+
			"where each node acts for itself, one of them coordinates all (--node-objects-only)")
	k.limits.Bind(flags)
	k.tuning.Bind(flags)
	flags.BoolVar(&k.lease.HoldUpstream, "hold-upstream-leases", false,
		"hold the leases of the sidecars, too, during a migration: sidecars with leader election stay passive")
}

// bindProcess declares the flags of a process that works while it holds a lease.
func (k *kubeFlags) bindProcess(flags *pflag.FlagSet) {
	flags.StringVar(&k.kubeconfig, "kubeconfig", "", "`FILE` with the way to the API server (default: that of the pod)")
	flags.StringVar(&k.namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"`NAMESPACE` of this process's own objects (default $POD_NAMESPACE, or the pod's)")
	flags.StringVar(&k.intents, "intents-namespace", "",
		"`NAMESPACE` of the intents alone (default: that of --namespace)")
	flags.StringVar(&k.pod, "pod-name", os.Getenv("POD_NAME"), "`NAME` of this process's pod (default $POD_NAME)")
	flags.StringVar(&k.podUID, "pod-uid", os.Getenv("POD_UID"),
		"`UID` of this process's pod (default $POD_UID); with it a restarted container takes its lease up at once")
	k.lease.Bind(flags)
}

func roleNames() string {
	var names []string
	for _, role := range kube.Roles() {
		names = append(names, string(role))
	}
	return strings.Join(names, ", ")
}

// kubeParts are the parts of the process that the controllers use.
type kubeParts struct {
	version    string
	client     *csiclient.Client
	node       string // of node deployment, or ""
	merges     bool   // the driver makes one change of an expansion and a modification
	nodeLabels nodelabel.Find
	// metricsVolumes is the number of volumes whose names are metrics.
	metricsVolumes int

	logger     *slog.Logger
	registerer prometheus.Registerer
	tracer     *tracing.Tracer
	points     *failpoint.Set
}

// controllers connects to the API server.
func (k *kubeFlags) controllers(p kubeParts) (*kube.Controllers, error) {
	// client-go logs through klog, which has one logger for the process.
	klog.SetSlogLogger(p.logger.With("component", "client-go"))
	if err := k.check(); err != nil {
		return nil, err
	}
	namespace, err := k.ownNamespace()
	if err != nil {
		return nil, err
	}
	clients, err := cluster.Connect(k.kubeconfig, "holdfast/"+p.version, cluster.Measured(p.registerer))
	if err != nil {
		return nil, err
	}
	var desired []kube.Role
	for _, name := range k.roles {
		desired = append(desired, kube.Role(name))
	}
	if k.lease.Identity, err = k.identity(); err != nil {
		return nil, err
	}
	k.leaseOf(p.node)
	controllers, err := kube.New(kube.Options{
		Clients: clients, CSI: p.client, Node: p.node, MergesChanges: p.merges, Namespace: namespace, Intents: k.intents,
		Pod: k.pod, Wanted: desired, NodeLabels: p.nodeLabels,
		Elect: k.elect, Lease: k.lease, Tuning: k.tuning, Limits: k.limits,
		Logger: p.logger, Registerer: p.registerer, Tracer: p.tracer, Failpoints: p.points, MetricsVolumes: p.metricsVolumes,
	})
	if err != nil {
		return nil, &UsageError{Err: err}
	}
	return controllers, nil
}

// check refuses settings whose effect would show only in the middle of the work: calls
// that end before they begin, volumes whose name no object can have, times of a lease.
func (k *kubeFlags) check() error {
	if err := k.limits.Check(); err != nil {
		return &UsageError{Err: err}
	}
	if err := k.checkLease(); err != nil {
		return err
	}
	name := k.tuning.VolumeNamePrefix + "-" + string(uuid.NewUUID())
	if problems := validation.IsDNS1123Subdomain(name); k.tuning.VolumeNamePrefix != "" &&
		(len(problems) > 0 || len(name) > longestVolumeName) {
		return usageErrorf("--volume-name-prefix: %q cannot begin the name of a volume: use at most %d lower case letters, digits, '-' and '.'",
			k.tuning.VolumeNamePrefix, longestVolumeName-len(name)+len(k.tuning.VolumeNamePrefix))
	}
	return nil
}

// checkLease refuses times of a lease that others may take while it is renewed
// (client-go's rules).
func (k *kubeFlags) checkLease() error {
	switch l := k.lease; {
	case k.elect && l.Duration.Truncate(time.Second) <= l.RenewDeadline: // a Lease has whole seconds
		return usageErrorf("--leader-election-lease-duration: %v is not above --leader-election-renew-deadline, %v",
			l.Duration, l.RenewDeadline)
	case k.elect && float64(l.RenewDeadline) <= lease.JitterFactor*float64(l.RetryPeriod):
		return usageErrorf("--leader-election-renew-deadline: %v is not above %v times --leader-election-retry-period, %v",
			l.RenewDeadline, lease.JitterFactor, l.RetryPeriod)
	}
	return nil
}

// leaseOf is the state of the lease; nil for a process that acts for one node or runs
// alone, and needs no lease.
func (k *kubeFlags) leaseOf(node string) *lease.State {
	if node == "" && k.elect && k.lease.State == nil {
		k.lease.State = &lease.State{}
	}
	return k.lease.State
}

// identity is this process's name in the lease, which no other living process has.
func (k *kubeFlags) identity() (string, error) {
	name := k.pod
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("host name for the lease: %w", err)
		}
		name = host
	}
	return lease.Identity(name, k.podUID), nil
}

func (k *kubeFlags) ownNamespace() (string, error) {
	if k.namespace != "" {
		return k.namespace, nil
	}
	text, err := os.ReadFile(namespaceFile)
	if os.IsNotExist(err) {
		return "", usageErrorf("--namespace is not given, and this process is not in a pod: " +
			"name the namespace of the lease and the other objects of this process")
	}
	if err != nil {
		return "", fmt.Errorf("the pod's namespace: %w", err)
	}
	return cmp.Or(strings.TrimSpace(string(text)), "default"), nil
}
