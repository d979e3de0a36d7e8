package upstreamflags

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// entry describes the treatment of some upstream flags.
type entry struct {
	flags []string
	// target is the own flag that is set, through convert where the values
	// differ ("" from convert sets nothing). Without a target the flag is
	// ignored, and why is the reason. With a target, why describes convert.
	target  string
	convert func(string) (string, error)
	why     string
	silent  []string           // values whose loss needs no warning
	refuse  func(string) error // where ignoring would do something else than was meant
	boolean bool
	gates   map[string]string // own flags of the feature gates in a list
	// shorthand is klog's -v.
	shorthand string
	// prefixes are the controllers that had the flag; --<controller>-<flag> means
	// the same (KEP-4958).
	prefixes []string
}

func (e entry) names() []string {
	names := e.flags
	for _, prefix := range e.prefixes {
		for _, flag := range e.flags {
			names = append(names[:len(names):len(names)], prefix+"-"+flag)
		}
	}
	return names
}

// usage describes the flag in one line, for the reference.
func (e entry) usage() string {
	switch {
	case e.target == "":
		return "ignored: " + e.why
	case e.why != "":
		return e.why
	}
	return "--" + e.target
}

// The controllers of KEP-4958.
const (
	provisioner = "provisioner"
	attacher    = "attacher"
	resizer     = "resizer"
	snapshotter = "snapshotter"
	monitor     = "health-monitor"
	registrar   = "node-driver-registrar"
	probe       = "livenessprobe"
)

func entries() []entry {
	return slices.Concat(renamed(), ofOneController(), ofSeveralControllers(), ignored(), logging())
}

// renamed are settings that Holdfast has under another name.
func renamed() []entry {
	return []entry{
		{flags: []string{"http-endpoint"}, target: "metrics-address"},
		{flags: []string{"workers"}, target: "resizer-worker-threads", prefixes: []string{resizer}},
		{flags: []string{"resize-timeout"}, target: "resizer-timeout", prefixes: []string{resizer}},
		{flags: []string{"modify-timeout"}, target: "resizer-modify-timeout"},
		{flags: []string{"plugin-registration-path"}, target: "registration-dir", prefixes: []string{registrar}},
		{flags: []string{"list-volumes-interval"}, target: "monitor-interval", prefixes: []string{monitor}},
		{flags: []string{"health-port"}, target: "driver-health-address", convert: port, prefixes: []string{probe}},
	}
}

// ofOneController are own flags, of the same name, that only one sidecar had.
func ofOneController() []entry {
	var all []entry
	add := func(controller string, boolean bool, flags ...string) {
		for _, flag := range flags {
			all = append(all, entry{flags: []string{controller + "-" + flag}, target: flag, boolean: boolean})
		}
	}
	add(provisioner, true, "strict-topology", "immediate-topology", "enable-capacity", "capacity-for-immediate-binding",
		"node-deployment", "node-deployment-immediate-binding", "controller-publish-readonly", "prevent-volume-mode-conversion")
	add(provisioner, false, "volume-name-prefix", "volume-name-uuid-length", "capacity-poll-interval", "capacity-ownerref-level",
		"capacity-threads", "cloning-protection-threads")
	add(attacher, false, "reconcile-sync", "max-entries")
	add(resizer, true, "extra-modify-metadata", "handle-volume-inuse-error")
	add(snapshotter, false, "snapshot-name-prefix", "snapshot-name-uuid-length", "groupsnapshot-name-prefix", "groupsnapshot-name-uuid-length")
	add(monitor, false, "monitor-interval")
	add(registrar, false, "kubelet-registration-path")
	add(probe, false, "probe-timeout")
	return all
}

// ofSeveralControllers are settings that the sidecars had each for itself, and
// that Holdfast has once.
func ofSeveralControllers() []entry {
	const once = "all controllers share one setting; use the flag without the controller's name"
	return []entry{
		{flags: []string{provisioner + "-default-fstype", attacher + "-default-fstype"}, why: once},
		{flags: []string{provisioner + "-extra-create-metadata", snapshotter + "-extra-create-metadata"}, why: once, boolean: true},
	}
}

// ignored returns the flags without a meaning in Holdfast.
func ignored() []entry {
	const unlimited = "Holdfast has no client-side limit; " +
		"the API server limits each client (API Priority and Fairness), and Holdfast honours its answers"
	const noResync = "no controller depends on a resync; those that need a periodic pass have their own interval"
	return []entry{
		{flags: []string{"kube-api-qps", "kube-api-burst"}, why: unlimited, prefixes: []string{provisioner, attacher, resizer, snapshotter, monitor}},
		{flags: []string{"kube-api-capacity-qps", "kube-api-capacity-burst"}, why: unlimited, prefixes: []string{provisioner}},
		{flags: []string{"feature-gates"}, silent: []string{"", "Topology=true"}, prefixes: []string{provisioner, attacher, resizer, snapshotter},
			gates: map[string]string{"CrossNamespaceVolumeDataSource": "cross-namespace-sources"},
			why:   "this gate does not exist: the driver and the cluster report their capabilities"},
		{flags: []string{"metrics-path"}, silent: []string{"/metrics"}, why: "metrics are at /metrics"},
		{flags: []string{"automaxprocs"}, boolean: true, silent: []string{"true"}, why: "the Go runtime itself follows the container's CPU limit"},
		{flags: []string{"enable-pprof"}, boolean: true, silent: []string{"false"}, prefixes: []string{provisioner},
			why: "profiles are served on a loopback address; use --pprof-address"},
		{flags: []string{"resync"}, why: noResync, prefixes: []string{attacher, monitor}},
		{flags: []string{"resync-period"}, why: noResync, prefixes: []string{resizer, snapshotter}},
		{flags: []string{"snapshot-orphan-sweep-interval"}, why: "finalizers of sources follow from the restores in progress, not from sweeps", prefixes: []string{provisioner}},
		{flags: []string{"node-deployment-base-delay", "node-deployment-max-delay"}, why: "the delay of each node follows from the claim", prefixes: []string{provisioner}},
		{flags: []string{"max-grpc-log-length"}, why: "requests and answers of the driver are not logged", prefixes: []string{attacher}},
		{flags: []string{"connection-timeout"}, why: "the process waits for the driver without a limit", prefixes: []string{registrar}},
		{flags: []string{"mode"}, silent: []string{"registration"}, why: "registration is the only mode, and its state is part of /readyz", prefixes: []string{registrar}},
		{flags: []string{"enable-node-watcher"}, boolean: true, silent: []string{"false"}, prefixes: []string{monitor},
			why: "the driver reports volume health (KEP-1432); Kubernetes itself shows nodes that are down"},
		{flags: []string{"volume-list-add-interval", "node-list-add-interval"}, why: "volumes are followed as they change", prefixes: []string{monitor}},
		{flags: []string{"enable-distributed-snapshotting"}, boolean: true, silent: []string{"false"}, why: "it is the snapshot-controller's, which stays a separate process; see --node-deployment"},
		{flags: []string{"retry-crd-interval-max"}, why: "kinds that the cluster lacks are looked for once a minute"},
		{flags: []string{"master"}, refuse: noMaster},
	}
}

// logging returns the flags of klog and of Kubernetes' component-base.
func logging() []entry {
	const oneStream = "logs go to standard error, unbuffered; see --log-format and --log-level"
	return []entry{
		{flags: []string{"v"}, target: "log-level", convert: verbosity, shorthand: "v", why: "--log-level=debug from 4 on"},
		{flags: []string{"logging-format"}, target: "log-format"},
		{flags: []string{"logtostderr", "alsologtostderr", "one_output", "skip_headers", "skip_log_headers", "add_dir_header"},
			boolean: true, silent: []string{"true", "false"}, why: oneStream},
		{flags: []string{"log_dir", "log_file", "log_file_max_size", "log_backtrace_at", "log-flush-frequency", "stderrthreshold", "vmodule"},
			why: oneStream},
		{flags: []string{"log-text-split-stream", "log-json-split-stream"}, boolean: true, silent: []string{"false"}, why: oneStream},
		{flags: []string{"log-text-info-buffer-size", "log-json-info-buffer-size"}, silent: []string{"", "0"}, why: oneStream},
	}
}

func noMaster(address string) error {
	if address == "" {
		return nil
	}
	// To ignore it would be to work on another cluster than was meant.
	return errors.New("the address of the API server cannot be given by itself; write a kubeconfig file and give --kubeconfig")
}

// port converts livenessprobe's port to an address.
func port(text string) (string, error) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", fmt.Errorf("%q is not a port", text)
	}
	return fmt.Sprintf(":%d", number), nil
}

// verbosity converts klog's verbosity to a log level: from 4 on it is debug.
func verbosity(text string) (string, error) {
	level, err := strconv.Atoi(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a number", text)
	}
	if level >= 4 {
		return "debug", nil
	}
	return "", nil
}
