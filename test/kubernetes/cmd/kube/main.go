// Command kube is every program of a Kubernetes cluster in one executable: it runs the
// program by whose name it is called (a symbolic link per program). One link of 280 MB
// replaces six, and a page of the executable that several of them use is in memory
// once.
//
// containerd's shim is a separate program (see kubernetes.mk): one runs for
// each pod, and the start of this executable alone costs 40 MB.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	containerd "github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// The plugins of containerd register themselves.
	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	// The metrics of clients and the version, which each program exports.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// programs maps the executable's names to their programs. Each returns its exit code.
var programs = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl":                 runKubectl,
	"containerd":              runContainerd,
}

func main() {
	program, ok := programs[filepath.Base(os.Args[0])]
	if !ok {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintf(os.Stderr, "%s: call this by the name of one of its programs: %s\n", os.Args[0], strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(program())
}

// command makes a program of one that is a cobra command.
func command(make func() *cobra.Command) func() int {
	return func() int { return cli.Run(make()) }
}

func runEtcd() int {
	etcdmain.Main(os.Args) // which exits by itself when it fails
	return 0
}

func runKubectl() int {
	// As kubectl's own main: the verbosity counts before the flags are parsed.
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl:", err)
		return 2
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it and exits
	}
	return 0
}

func runContainerd() int {
	if err := containerd.App().Run(context.Background(), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		return 1
	}
	return 0
}
