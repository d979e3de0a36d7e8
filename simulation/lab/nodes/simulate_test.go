//go:build simulate

package nodes_test

import (
	"flag"
	"io"
	"testing"

	"k8s.io/klog/v2"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/simulation/lab"
	"github.com/holdfast-csi/holdfast/simulation/lab/kube"
)

// quiet discards the log of client-go, whose text would be written by system calls.
func quiet(t *testing.T) {
	t.Helper()
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(io.Discard)
}

func world(t *testing.T) lab.World {
	t.Helper()
	quiet(t)
	known, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return kube.RunNodes(known)
}

// TestSimulate runs a seed. It has a build tag, since a seed repeats only in a binary with the
// overlay, which `make simulate` builds: without it, a failure could not be repeated.
func TestSimulate(t *testing.T) { lab.Simulate(t, "nodes", world(t)) }
