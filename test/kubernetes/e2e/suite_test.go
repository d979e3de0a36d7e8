package e2e

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
	"github.com/holdfast-csi/holdfast/test/kubernetes/leftovers"
)

// suite is the cluster and the clients that all tests share.
type suite struct {
	cluster    *cluster.Cluster
	deployment *deployment.Deployment
	api        kubernetes.Interface
	snapshots  snapshots.Interface
	traces     *traces
	// timeout limits one wait for the cluster.
	timeout time.Duration
}

// chartValues are the chart's values of all installations; tests may override them.
var chartValues = []string{"log.level=info", "controllers.crossNamespaceSources=true"}

// start starts the cluster with the driver and removes it at the end of the test. The
// test fails if anything of it is left.
func start(t *testing.T) *suite {
	t.Helper()
	s := up(t, cluster.Options{Dir: "e2e", FeatureGates: map[string]bool{"CrossNamespaceVolumeDataSource": true}})
	s.traces = receiveTraces(t, s)
	s.install(t, deployment.Options{Values: append(s.traces.values(), chartValues...)})
	return s
}

// up starts a cluster of two nodes, or without nodes, or of the one machine that
// test/machine has. Its Dir is below bin.
func up(t *testing.T, o cluster.Options) *suite {
	t.Helper()
	root := absolute(t, "../../..")
	o.Dir, o.Binaries = filepath.Join(root, "bin", o.Dir), filepath.Join(root, "bin/kubernetes")
	if other := os.Getenv("HOLDFAST_KUBERNETES"); other != "" {
		o.Binaries = other
	}
	s := &suite{timeout: timeout}
	if machines := os.Getenv("HOLDFAST_MACHINES"); machines != "" && !o.NoNodes {
		o.Machines, o.Nodes, s.timeout = machines, 1, machineTimeout
	}
	if !o.NoNodes {
		o.Images = []string{filepath.Join(o.Binaries, "images.tar")}
	}
	o.Kubelet, o.Attached = kubeletFields(), true
	gates := map[string]bool{"KubeletCrashLoopBackOffMax": true} // for the field of that name, also before 1.35
	maps.Copy(gates, o.FeatureGates)
	o.FeatureGates = gates
	watch := leftovers.Start(t)
	begun := time.Now()
	c, err := cluster.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	watch.Cluster = c.ID
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the cluster is up after %v, its logs are in %s", time.Since(begun).Round(time.Millisecond), c.LogDir())
	s.cluster = c
	s.connect(t)
	return s
}

// install imports the built image on the nodes and installs the chart.
func (s *suite) install(t *testing.T, o deployment.Options) {
	t.Helper()
	o.Root = absolute(t, "../../..")
	archive := filepath.Join(o.Root, "bin/holdfast-image.tar")
	if other := os.Getenv("HOLDFAST_IMAGE"); other != "" {
		archive = other
	}
	image, err := deployment.ReadImage(archive)
	if err != nil {
		t.Fatal(err)
	}
	o.Image, o.Timeout = image, s.timeout
	begun := time.Now()
	if s.deployment, err = deployment.Install(t.Context(), s.cluster, o); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is installed after %v", image, time.Since(begun).Round(time.Millisecond))
}

// kubeletFields limit the kubelet's restart backoff to a second, because tests kill the
// driver many times. They also make the kubelet sync pods at intervals below a minute,
// so that it soon expands a mounted volume.
func kubeletFields() map[string]any {
	return map[string]any{
		"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "1s"}, "syncFrequency": "10s",
	}
}

func absolute(t *testing.T, relative string) string {
	t.Helper()
	path, err := filepath.Abs(relative)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *suite) connect(t *testing.T) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // no limit of this client
	if s.api, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.snapshots, err = snapshots.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
}

// finish uninstalls the driver, which must leave nothing.
func (s *suite) finish(t *testing.T) {
	t.Helper()
	s.expectEmptyPools(t)
	ctx, cancel := context.WithTimeout(t.Context(), s.timeout+time.Minute)
	defer cancel()
	if err := s.deployment.Uninstall(ctx); err != nil {
		t.Error(err)
	}
}
