// Package programs has the programs of Kubernetes as functions, for executables that are
// several of them.
package programs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// The metrics of clients and the version, which each program exports.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// Kubernetes maps the names of the programs of a control plane and a node to functions
// that run them and return their exit codes.
func Kubernetes() map[string]func() int {
	return map[string]func() int{
		"kube-apiserver":          command(apiserver.NewAPIServerCommand),
		"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	}
}

// command makes a program of one that is a cobra command.
func command(make func() *cobra.Command) func() int {
	return func() int { return cli.Run(make()) }
}

// Run runs the program by whose name the executable was called (a symbolic link for each
// program), and exits.
func Run(programs map[string]func() int) {
	program, ok := programs[filepath.Base(os.Args[0])]
	if !ok {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintf(os.Stderr, "%s: call this by the name of one of its programs: %s\n", os.Args[0], strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(program())
}
