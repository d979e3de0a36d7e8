// Command cluster starts and ends the Kubernetes cluster of package cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

const usage = `usage:
  cluster up [flags]      start a cluster, or report that it runs
  cluster run [flags]     start a cluster that ends when the input of this command does
  cluster down [flags]    end it and remove its files and devices
  cluster status [flags]  show what runs
  cluster import [flags] FILE   import the images of an archive on all nodes
  cluster node-stop|node-start|kubelet-restart [flags] NODE
Flags are listed with: cluster up -h
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New(strings.TrimSpace(usage))

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "up":
		return up(ctx, args[1:])
	case "run":
		return runAttached(ctx, args[1:])
	case "down":
		return down(args[1:])
	case "status":
		return status(ctx, args[1:])
	case "import", "node-stop", "node-start", "kubelet-restart":
		return operate(ctx, args[0], args[1:])
	case "supervise", "node", "node-in-group":
		return internal(args)
	}
	return errUsage
}

// internal runs the processes that package cluster starts from this executable.
func internal(args []string) error {
	switch {
	case args[0] == "supervise" && len(args) == 2:
		return cluster.Supervise(args[1])
	case args[0] == "node" && len(args) == 4:
		return cluster.EnterNode(append([]string{"node-in-group"}, args[1:]...))
	case args[0] == "node-in-group" && len(args) == 4:
		index, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return cluster.RunNode(args[1], args[2], index)
	}
	return errUsage
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func up(ctx context.Context, args []string) error {
	begun := time.Now()
	o, err := options("up", args)
	if err != nil {
		return err
	}
	c, err := cluster.Up(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d nodes are Ready after %.0f s. Logs: %s\n\n", len(c.Nodes), time.Since(begun).Seconds(), c.LogDir())
	fmt.Printf("  export KUBECONFIG=%s\n  %s get nodes\n", c.Kubeconfig, filepath.Join(o.Binaries, "kubectl"))
	return nil
}

// runAttached runs a cluster until its standard input ends, for a parent process such as
// a test: the cluster ends with the parent, also if that crashes.
func runAttached(ctx context.Context, args []string) error {
	o, err := options("run", args)
	if err != nil {
		return err
	}
	o.Attached = true
	c, err := cluster.Up(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println(c.Kubeconfig)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return c.Down()
}

// options are those of the commands that start a cluster.
func options(command string, args []string) (cluster.Options, error) {
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	dir := dirFlag(flags)
	binaries := flags.String("binaries", ownDirectory(), "directory of the programs")
	nodes := flags.Int("nodes", 2, "how many nodes; 0 for the control plane alone")
	gates := flags.String("feature-gates", "", "of all programs, as Gate=true,Other=false")
	var images list
	flags.Var(&images, "image", "archive of images for all nodes; may be repeated")
	if err := flags.Parse(args); err != nil {
		return cluster.Options{}, err
	}
	parsed, err := parseGates(*gates)
	return cluster.Options{
		Dir: *dir, Binaries: *binaries, Nodes: *nodes, NoNodes: *nodes == 0, FeatureGates: parsed, Images: images,
	}, err
}

func parseGates(s string) (map[string]bool, error) {
	gates := make(map[string]bool)
	for _, pair := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("feature gate %q: write it as Name=true or Name=false", pair)
		}
		gates[name] = on
	}
	return gates, nil
}

func down(args []string) error {
	flags := flag.NewFlagSet("down", flag.ExitOnError)
	dir := dirFlag(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	return cluster.Down(*dir)
}

func status(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("status", flag.ExitOnError)
	dir := dirFlag(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := cluster.Open(*dir)
	if err != nil {
		return err
	}
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("server %s\nprograms %v\nnodes %v\n%s\n", c.Server, s.Programs, s.Nodes, s.Error)
	return nil
}

func operate(ctx context.Context, verb string, args []string) error {
	flags := flag.NewFlagSet(verb, flag.ExitOnError)
	dir := dirFlag(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errUsage
	}
	c, err := cluster.Open(*dir)
	if err != nil {
		return err
	}
	switch verb {
	case "import":
		return c.ImportImage(ctx, flags.Arg(0))
	case "node-stop":
		return c.StopNode(ctx, flags.Arg(0))
	case "node-start":
		return c.StartNode(ctx, flags.Arg(0))
	default:
		return c.RestartKubelet(ctx, flags.Arg(0))
	}
}

func dirFlag(flags *flag.FlagSet) *string {
	return flags.String("dir", "/var/lib/holdfast-cluster", "state directory")
}

// ownDirectory is the directory of this executable.
func ownDirectory() string {
	path, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(path)
}
