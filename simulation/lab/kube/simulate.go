//go:build simulate

package kube

import (
	"flag"
	"io"
	"testing"

	"k8s.io/klog/v2"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// Simulate is lab.Simulate of the door "kube", or of "nodes", which is the same with node
// deployment.
func Simulate(t *testing.T, door string) {
	t.Helper()
	quiet(t)
	known, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	lab.Simulate(t, door, Run(known, door == "nodes"))
}

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
