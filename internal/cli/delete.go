package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

type deleteConfig struct {
	hostClient
	files    []string
	wait     bool
	missing  bool
	abandon  bool
	all      bool
	selector string
	timeout  time.Duration
}

func newDeleteCommand() *cobra.Command {
	var c deleteConfig
	command := &cobra.Command{
		Use:   "delete -f FILE… | KIND NAME… | KIND/NAME… | KIND[,KIND] --all | KIND[,KIND] -l LABELS",
		Short: "Delete objects of the running host",
		Long: `Delete objects of the running host. Deleting a claim deletes its volume and the
data, unless the reclaim policy is Retain. An object that is in use is deleted when
its last user has ended; the command lists the users.`,
		Example: `  holdfast delete pvc data
  holdfast delete pod/web pod/db
  holdfast delete -f manifests/ --wait=false`,
		Args:              cobra.ArbitraryArgs,
		RunE:              func(command *cobra.Command, given []string) error { return c.run(command, given) },
		ValidArgsFunction: c.complete,
	}
	flags := command.Flags()
	c.bind(flags)
	c.bindNamespace(flags)
	flags.StringArrayVarP(&c.files, "filename", "f", nil,
		"manifest `FILE` or directory, - for standard input; may be repeated")
	flags.BoolVar(&c.all, "all", false, "all objects of the kinds, in the namespace")
	flags.StringVarP(&c.selector, "selector", "l", "", "`LABELS` that the objects have, such as app=web")
	flags.BoolVar(&c.wait, "wait", true, "wait until the objects are deleted")
	flags.BoolVar(&c.missing, "ignore-not-found", false, "do not fail for an object that does not exist")
	flags.BoolVar(&c.abandon, "abandon", false,
		"do not wait for a driver that will not return: its attachments and volumes stay behind and are listed")
	c.completeFlags(command)
	flags.DurationVar(&c.timeout, "timeout", 0, "how long --wait waits; 0: for ever")
	return command
}

func (c *deleteConfig) run(command *cobra.Command, given []string) error {
	if c.timeout < 0 {
		return usageErrorf("--timeout %s: a time is not below zero", c.timeout)
	}
	if err := c.checkSelector(command); err != nil {
		return err
	}
	client := c.dial()
	defer client.Close()
	objects, err := c.targets(command, client, given)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		command.PrintErrln("No resources found")
	}
	ctx := command.Context()
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	var before uint64
	if c.wait {
		if before, err = client.JournalSequence(ctx); err != nil {
			return err
		}
	}
	var failed []error
	var going []deletion
	for _, object := range objects {
		deleted, err := c.begin(ctx, command, client, object)
		failed = append(failed, err)
		d := deletion{object, deleted.Waits}
		if c.abandon {
			d.explain(command.ErrOrStderr()) // also after an error: the list says which work remains
		}
		if err == nil && !deleted.Gone && c.wait {
			going = append(going, d)
		} else if !c.abandon {
			d.explain(command.ErrOrStderr())
		}
	}
	return errors.Join(append(failed, c.await(ctx, command, client, going, before))...)
}

// checkSelector refuses a selector that selects everything: --all is for that, and a
// variable of a script that is not set must not be.
func (c *deleteConfig) checkSelector(command *cobra.Command) error {
	selector, err := labels.Parse(c.selector)
	switch {
	case err != nil:
		return usageErrorf("-l %q: %w", c.selector, err)
	case command.Flags().Changed("selector") && selector.Empty():
		return usageErrorf("-l %q: names no label; use --all for all objects of a kind", c.selector)
	}
	return nil
}

// deletion is an object that is being deleted, and the reasons that delay it.
type deletion struct {
	named
	waits []string
}

func (d deletion) explain(out io.Writer) {
	for _, reason := range d.waits {
		_, _ = fmt.Fprintf(out, "%s %q: %s\n", singular(d.kind), d.name, printable(reason))
	}
}

// explainAfter is the time after which the command explains why a deletion is not
// complete: most take less.
const explainAfter = 2 * time.Second

// targets returns the objects in the order of their deletion: users of an object before
// it.
func (c *deleteConfig) targets(command *cobra.Command, client *api.Client, given []string) ([]named, error) {
	if len(c.files) > 0 {
		if len(given) > 0 || c.all || c.selector != "" {
			return nil, usageErrorf("-f names the objects: it does not go with names, --all and -l, not both")
		}
		files, err := readManifests(command, c.files)
		if err != nil {
			return nil, err
		}
		objects, err := namesIn(files, c.namespace)
		usersFirst(objects)
		return objects, err
	}
	selections, err := parseSelections(given)
	if err != nil {
		return nil, err
	}
	if c.all || c.selector != "" {
		return c.listed(command.Context(), client, given, selections)
	}
	var objects []named
	for _, chosen := range selections {
		if len(chosen.names) == 0 {
			return nil, usageErrorf("say which of the %s, by name", chosen.kind.Resource)
		}
		for _, name := range chosen.names {
			objects = append(objects, named{kind: chosen.kind, namespace: c.namespace, name: name})
		}
	}
	return objects, nil
}

// listed returns the objects of --all or -l.
func (c *deleteConfig) listed(
	ctx context.Context, client *api.Client, given []string, selections []selection,
) ([]named, error) {
	switch {
	case len(selections[0].names) > 0:
		return nil, usageErrorf("names do not go with --all and -l")
	case c.all && c.selector != "":
		return nil, usageErrorf("either --all or -l, not both")
	case given[0] == "all":
		return nil, usageErrorf("name the kinds, such as pods,pvc: all kinds have the classes and drivers, too")
	}
	var objects []named
	for _, chosen := range selections {
		options := api.ListOptions{LabelSelector: c.selector}
		if chosen.kind.Namespaced {
			options.Namespace = c.namespace
		}
		found, err := client.List(ctx, chosen.kind, options)
		if err != nil {
			return nil, err
		}
		for _, object := range found.Items {
			objects = append(objects, named{kind: chosen.kind, namespace: object.GetNamespace(), name: object.GetName()})
		}
	}
	usersFirst(objects)
	return objects, nil
}

// usersFirst puts the users of an object before it.
func usersFirst(objects []named) {
	order := store.Kinds()
	rank := func(object named) int {
		return slices.IndexFunc(order, func(kind store.Kind) bool { return kind.Resource == object.kind.Resource })
	}
	slices.SortStableFunc(objects, func(a, b named) int { return rank(b) - rank(a) })
}

// begin deletes one object and prints that.
func (c *deleteConfig) begin(
	ctx context.Context, command *cobra.Command, client *api.Client, object named,
) (api.Deleted, error) {
	deleted, err := client.Delete(ctx, object.kind, object.namespace, object.name, api.DeleteOptions{Abandon: c.abandon})
	if c.missing && errors.Is(err, api.ErrNotFound) {
		return api.Deleted{Gone: true}, nil
	}
	if err != nil {
		return deleted, err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "%s %q deleted\n", singular(object.kind), object.name)
	return deleted, err
}

// await waits until objects are gone, and shows their steps after an entry of the journal.
func (c *deleteConfig) await(
	ctx context.Context, command *cobra.Command, client *api.Client, objects []deletion, after uint64,
) (err error) {
	if len(objects) == 0 {
		return nil
	}
	steps := showDeletions(ctx, command.ErrOrStderr(), client, after, objects)
	defer func() { steps.stop(err == nil) }()
	begun := time.Now()
	for i, object := range objects {
		timer := time.AfterFunc(explainAfter-time.Since(begun), func() { object.explain(steps) })
		err := awaitGone(ctx, client, object.named)
		timer.Stop()
		when := "after " + c.timeout.String()
		if command.Context().Err() != nil {
			when = "(interrupted)"
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s %q is still there %s; its deletion continues: see 'holdfast describe %s/%s'%s",
				singular(object.kind), object.key(), when, singular(object.kind), object.name, others(objects[i+1:]))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// others says that the deletions which were not waited for continue, too.
func others(objects []deletion) string {
	var names []string
	for _, object := range objects {
		names = append(names, fmt.Sprintf("%s %q", singular(object.kind), object.key()))
	}
	if len(names) == 0 {
		return ""
	}
	return "; not waited for: the deletion of " + strings.Join(names, ", ")
}

var errGone = errors.New("it is gone")

func awaitGone(ctx context.Context, client *api.Client, object named) error {
	for {
		options := api.ListOptions{FieldSelector: "metadata.name=" + object.name}
		if object.kind.Namespaced {
			options.Namespace = object.namespace
		}
		listed, err := client.List(ctx, object.kind, options)
		// An object that is not being deleted is a new one of the same name.
		if err != nil || len(listed.Items) == 0 || listed.Items[0].GetDeletionTimestamp() == nil {
			return err
		}
		options.ResourceVersion = listed.ResourceVersion
		err = client.Watch(ctx, object.kind, options, func(event api.WatchEvent) error {
			if event.Type == watch.Deleted {
				return errGone
			}
			return nil
		})
		switch {
		case errors.Is(err, errGone):
			return nil
		case !errors.Is(err, store.ErrExpired):
			return err
		}
	}
}
