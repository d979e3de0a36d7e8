package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-csi/holdfast/internal/host"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// logsConfig are the flags of logs.
type logsConfig struct {
	hostClient
	request       api.LogRequest
	selector      string
	allContainers bool
	prefix        bool
	since         time.Duration
	sinceTime     string
}

func newLogsCommand() *cobra.Command {
	c := logsConfig{}
	command := &cobra.Command{
		Use:   "logs POD | -l LABELS",
		Short: "Show the output of pods' containers",
		Example: `  holdfast logs web
  holdfast logs web -c proxy -f
  holdfast logs -l app=web --all-containers --since 10m --timestamps`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(command *cobra.Command, given []string) error {
			if !command.Flags().Changed("prefix") {
				c.prefix = c.selector != "" || c.allContainers
			}
			return ended(command.Context(), c.run(command, given))
		},
		ValidArgsFunction: c.completePods,
	}
	flags := command.Flags()
	c.bind(flags)
	c.bindNamespace(flags)
	flags.StringVarP(&c.request.Container, "container", "c", "", "`NAME` of the container, if the pod has several")
	flags.BoolVar(&c.allContainers, "all-containers", false, "of all containers of the pod")
	flags.StringVarP(&c.selector, "selector", "l", "", "of all pods with these `LABELS`, such as app=web")
	flags.BoolVarP(&c.request.Follow, "follow", "f", false, "keep running until the container ends")
	flags.BoolVarP(&c.request.Previous, "previous", "p", false, "of the run before the last restart")
	flags.BoolVar(&c.request.Timestamps, "timestamps", false, "put the time at which it was written before each line")
	flags.DurationVar(&c.since, "since", 0, "only what was written in the last `DURATION`, such as 10m")
	flags.StringVar(&c.sinceTime, "since-time", "", "only what was written after a `TIME` such as 2006-01-02T15:04:05Z")
	flags.BoolVar(&c.prefix, "prefix", false, "put [POD/CONTAINER] before each line (default: with -l or --all-containers)")
	c.completeFlags(command)
	flags.Int64Var(&c.request.Tail, "tail", -1, "only the last `LINES` of each container; -1: all")
	return command
}

func (c *logsConfig) run(command *cobra.Command, given []string) error {
	if err := c.check(given); err != nil {
		return err
	}
	client := c.dial()
	defer client.Close()
	out := command.OutOrStdout()
	if c.selector == "" && !c.allContainers && !c.prefix {
		return client.Logs(command.Context(), c.request, out)
	}
	requests, err := c.requests(command.Context(), client)
	if err != nil {
		return err
	}
	if len(requests) == 0 {
		command.PrintErrf("No pods with the labels %s in namespace %s.\n", c.selector, c.namespace)
		return nil
	}
	return c.all(command.Context(), client, requests, out)
}

// check completes the request by what was given.
func (c *logsConfig) check(given []string) (err error) {
	c.request.Namespace = c.namespace
	switch {
	case len(given) == 0 && c.selector == "":
		return usageErrorf("say which pod")
	case len(given) > 0 && c.selector != "":
		return usageErrorf("either a pod or -l LABELS, not both")
	case c.request.Container != "" && c.allContainers:
		return usageErrorf("either -c NAME or --all-containers, not both")
	case c.since != 0 && c.sinceTime != "":
		return usageErrorf("either --since or --since-time, not both")
	case c.since < 0:
		return usageErrorf("--since %s is below zero", c.since)
	case c.since > 0:
		c.request.Since = time.Now().Add(-c.since)
	case c.sinceTime != "":
		if c.request.Since, err = time.Parse(time.RFC3339Nano, c.sinceTime); err != nil {
			return usageErrorf("--since-time %q is not a time as 2006-01-02T15:04:05Z", c.sinceTime)
		}
	}
	if c.selector != "" {
		if _, err := labels.Parse(c.selector); err != nil {
			return usageErrorf("-l %q: %w", c.selector, err)
		}
		return nil
	}
	if c.request.Pod = podName(given[0]); checkNames([]string{c.request.Pod}) != nil {
		return usageErrorf("%q is not a pod's name", given[0])
	}
	return nil
}

// podName is the name in NAME, pod/NAME or pods/NAME.
func podName(word string) string {
	return strings.TrimPrefix(strings.TrimPrefix(word, "pods/"), "pod/")
}

// requests has one for each container.
func (c *logsConfig) requests(ctx context.Context, client *api.Client) (requests []api.LogRequest, err error) {
	kind, _ := store.KindOf("pods")
	var found []store.Object
	if c.selector != "" {
		list, err := client.List(ctx, kind, api.ListOptions{Namespace: c.namespace, LabelSelector: c.selector})
		if err != nil {
			return nil, err
		}
		found = list.Items
	} else {
		object, err := client.Get(ctx, kind, c.namespace, c.request.Pod)
		if err != nil {
			return nil, err
		}
		found = []store.Object{object}
	}
	for _, object := range found {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			continue
		}
		for _, name := range c.containersOf(pod) {
			request := c.request
			request.Pod, request.Container = pod.Name, name
			requests = append(requests, request)
		}
	}
	return requests, nil
}

// containersOf names the containers of a pod whose output is wanted: the one that is
// named, all, or the only one, which "" stands for.
func (c *logsConfig) containersOf(pod *corev1.Pod) (names []string) {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names = append(names, container.Name)
	}
	switch {
	case c.request.Container != "":
		return []string{c.request.Container}
	case c.allContainers:
		return names
	case len(pod.Spec.Containers) == 1:
		return []string{pod.Spec.Containers[0].Name}
	}
	return []string{""}
}

// all writes several outputs: at once if they are followed, otherwise one after the other.
// The failure of one does not keep the others back.
func (c *logsConfig) all(ctx context.Context, client *api.Client, requests []api.LogRequest, out io.Writer) error {
	shared := &sharedWriter{out: out}
	failed := make([]error, len(requests))
	one := func(i int) {
		name := ""
		if c.prefix {
			name = strings.TrimSuffix(requests[i].Pod+"/"+requests[i].Container, "/")
		}
		lines := host.NewPrefixer(shared, name)
		failed[i] = errors.Join(client.Logs(ctx, requests[i], lines), lines.Flush())
	}
	var group sync.WaitGroup
	for i := range requests {
		if c.request.Follow {
			group.Go(func() { one(i) })
		} else {
			one(i)
		}
	}
	group.Wait()
	return errors.Join(failed...)
}

// sharedWriter is for several writers at once.
type sharedWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (s *sharedWriter) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(data)
}
