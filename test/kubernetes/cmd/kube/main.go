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
	"os"

	containerd "github.com/containerd/containerd/v2/cmd/containerd/command"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/holdfast-csi/holdfast/test/kubernetes/programs"

	// The plugins of containerd register themselves.
	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
)

func main() {
	all := programs.Kubernetes()
	all["etcd"], all["kubectl"], all["containerd"] = runEtcd, runKubectl, runContainerd
	programs.Run(all)
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
