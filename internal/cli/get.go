package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-csi/holdfast/internal/cli/gotemplate"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// The forms of get's output.
const (
	outputTable = ""
	outputWide  = "wide"
	outputYAML  = "yaml"
	outputJSON  = "json"
	outputName  = "name"
)

type getConfig struct {
	hostClient
	everywhere bool
	output     string
	selector   string
	watch      bool
	labels     bool
	noHeaders  bool
	sortBy     string
	template   *gotemplate.Template // of output, if that is one
}

func newGetCommand() *cobra.Command {
	var c getConfig
	command := &cobra.Command{
		Use:   "get KIND[,KIND] [NAME…] | KIND/NAME…",
		Short: "Show objects of the running host",
		Long: `Show objects of the running host. KIND is one of
` + kindLines() + `drivers, which are no objects, or all.`,
		Example: `  holdfast get pvc
  holdfast get pvc,pods -A
  holdfast get pvc/data -o yaml
  holdfast get pods --watch`,
		Args:              cobra.ArbitraryArgs,
		RunE:              func(command *cobra.Command, given []string) error { return c.run(command, given) },
		ValidArgsFunction: c.completeAll,
	}
	flags := command.Flags()
	c.bind(flags)
	c.bindNamespace(flags)
	c.bindSelection(flags)
	flags.StringVarP(&c.output, "output", "o", "",
		"`FORM`: wide, yaml, json, name, jsonpath=TEMPLATE, go-template=TEMPLATE, go-template-file=FILE or custom-columns=HEADER:PATH,…")
	flags.StringVar(&c.sortBy, "sort-by", "", "`PATH` of the field by which the objects are sorted, such as .metadata.creationTimestamp")
	flags.BoolVarP(&c.watch, "watch", "w", false, "keep running, and show each change")
	flags.BoolVar(&c.labels, "show-labels", false, "show the labels in a last column")
	flags.BoolVar(&c.noHeaders, "no-headers", false, "show no headers")
	c.completeFlags(command)
	completeValues(command, "output", []string{outputWide, outputYAML, outputJSON, outputName})
	return command
}

// bindSelection declares the flags that choose objects without naming them.
func (c *getConfig) bindSelection(flags *pflag.FlagSet) {
	flags.BoolVarP(&c.everywhere, "all-namespaces", "A", false, "objects of every namespace")
	flags.StringVarP(&c.selector, "selector", "l", "", "`LABELS` that the objects have, such as app=web,tier!=test")
}

// selections reads the arguments, and checks them with the flags of bindSelection.
func (c *getConfig) selections(given []string) ([]selection, error) {
	if _, err := labels.Parse(c.selector); err != nil {
		return nil, usageErrorf("-l %q: %w", c.selector, err)
	}
	selections, err := parseSelections(given)
	switch {
	case err != nil:
		return nil, err
	case c.selector != "" && len(selections[0].names) > 0:
		return nil, usageErrorf("names and -l do not go together")
	case c.everywhere && len(selections[0].names) > 0:
		return nil, usageErrorf("a name is of one namespace: -A does not go with names")
	}
	if c.everywhere {
		c.namespace = ""
	}
	return selections, nil
}

// completeValues offers fixed values for a flag.
func completeValues(command *cobra.Command, flag string, values []string) {
	err := command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // a programming error: the flag does not exist
	}
}

func kindLines() string {
	var lines strings.Builder
	for _, kind := range tableKinds() {
		fmt.Fprintf(&lines, "  %s", kind.kind.Resource)
		if len(kind.short) > 0 {
			fmt.Fprintf(&lines, " (%s)", strings.Join(kind.short, ", "))
		}
		lines.WriteByte('\n')
	}
	return lines.String()
}

func (c *getConfig) run(command *cobra.Command, given []string) error {
	if err := c.checkForm(); err != nil {
		return err
	}
	if names, ok := ofDrivers(given); ok {
		return c.drivers(command, names)
	}
	selections, err := c.selections(given)
	if err != nil {
		return err
	}
	switch {
	case c.watch && len(selections) > 1:
		return usageErrorf("--watch follows one kind at a time")
	case c.watch && c.sortBy != "":
		return usageErrorf("--sort-by and --watch do not go together")
	}
	client := c.dial()
	defer client.Close()
	if c.watch {
		return ended(command.Context(), c.follow(command.Context(), client, selections[0], command.OutOrStdout()))
	}
	return c.show(command, client, selections)
}

func (c *getConfig) options() api.ListOptions {
	return api.ListOptions{Namespace: c.namespace, LabelSelector: c.selector}
}

// read reads the selected objects. It returns those that exist together with the error
// about missing ones.
func (c *getConfig) read(ctx context.Context, client *api.Client, chosen selection) ([]store.Object, error) {
	if len(chosen.names) == 0 {
		listed, err := client.List(ctx, chosen.kind, c.options())
		if err == nil && c.sortBy != "" {
			return listed.Items, sortBy(listed.Items, c.sortBy)
		}
		return inOrder(listed.Items), err
	}
	var objects []store.Object
	var failed []error
	for _, name := range chosen.names {
		object, err := client.Get(ctx, chosen.kind, c.namespace, name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		objects = append(objects, object)
	}
	return objects, errors.Join(failed...)
}

// inOrder puts events in the order of time; the others have that of their names.
func inOrder(objects []store.Object) []store.Object {
	slices.SortStableFunc(objects, func(a, b store.Object) int {
		first, isEvent := a.(*corev1.Event)
		second, both := b.(*corev1.Event)
		if !isEvent || !both {
			return 0
		}
		return first.LastTimestamp.Compare(second.LastTimestamp.Time)
	})
	return objects
}

func (c *getConfig) show(command *cobra.Command, client *api.Client, selections []selection) error {
	var failed []error
	var all []store.Object
	shown := 0
	for _, chosen := range selections {
		objects, err := c.read(command.Context(), client, chosen)
		failed = append(failed, err)
		all = append(all, objects...)
		if c.isDocument() || len(objects) == 0 {
			continue
		}
		if shown++; shown > 1 && c.output != outputName {
			if _, err := fmt.Fprintln(command.OutOrStdout()); err != nil {
				return err
			}
		}
		style := c.style(len(selections) > 1)
		if c.output != outputName {
			style.progress = progressOf(command.Context(), client, chosen.kind, objects)
		}
		if err := c.write(command.OutOrStdout(), chosen.tableKind, objects, style); err != nil {
			return err
		}
	}
	err := errors.Join(failed...)
	switch {
	case c.isDocument() && (err == nil || len(all) > 0):
		single := len(selections) == 1 && len(selections[0].names) == 1
		return errors.Join(c.document(command.OutOrStdout(), all, single), err)
	case len(all) == 0 && err == nil:
		command.PrintErrln(c.nothing(selections))
	}
	return err
}

func (c *getConfig) isDocument() bool {
	return c.output == outputYAML || c.output == outputJSON || strings.HasPrefix(c.output, jsonPathForm) ||
		strings.HasPrefix(c.output, columnsForm) || c.template != nil
}

// checkForm checks -o and --sort-by before a host is asked.
func (c *getConfig) checkForm() error {
	if template, ok := strings.CutPrefix(c.output, jsonPathForm); ok {
		if _, err := parsePath(template); err != nil {
			return usageErrorf("-o jsonpath: %w", err)
		}
	} else if text, ok := strings.CutPrefix(c.output, columnsForm); ok {
		if _, err := parseColumns(text); err != nil {
			return err
		}
	} else if text, ok, err := templateOf(c.output); err != nil {
		return err
	} else if ok {
		if c.template, err = gotemplate.Parse("output", text); err != nil {
			return usageErrorf("-o go-template: %w", err)
		}
	} else if !slices.Contains([]string{outputTable, outputWide, outputYAML, outputJSON, outputName}, c.output) {
		return usageErrorf("-o %q is none of wide, yaml, json and name, jsonpath=…, go-template=…, go-template-file=… and custom-columns=…", c.output)
	}
	if c.sortBy == "" {
		return nil
	}
	if _, err := parseField(c.sortBy); err != nil {
		return usageErrorf("--sort-by: %w", err)
	}
	return nil
}

func (c *getConfig) nothing(selections []selection) string {
	if c.namespace == "" || len(selections) == 1 && !selections[0].kind.Namespaced {
		return "No resources found"
	}
	return fmt.Sprintf("No resources found in %s namespace.", c.namespace)
}

func (c *getConfig) style(several bool) tableStyle {
	return tableStyle{
		wide: c.output == outputWide, namespaces: c.everywhere, labels: c.labels, noHeaders: c.noHeaders, prefix: several,
	}
}

func (c *getConfig) write(out io.Writer, kind tableKind, objects []store.Object, style tableStyle) error {
	if c.output == outputName {
		for _, object := range objects {
			if _, err := fmt.Fprintln(out, singular(kind.kind)+"/"+object.GetName()); err != nil {
				return err
			}
		}
		return nil
	}
	return newTable(out, kind, style).write(objects, time.Now())
}

// document writes objects whole: the one that was asked for, or a list.
func (c *getConfig) document(out io.Writer, objects []store.Object, single bool) error {
	var value any
	if single {
		value = objects[0]
	} else {
		if objects == nil {
			objects = []store.Object{}
		}
		value = asList(objects)
	}
	if template, ok := strings.CutPrefix(c.output, jsonPathForm); ok {
		return writePath(out, template, value)
	}
	if c.template != nil {
		return writeTemplate(out, c.template, value)
	}
	if text, ok := strings.CutPrefix(c.output, columnsForm); ok {
		return writeColumns(out, text, objects, c.noHeaders)
	}
	data, err := json.MarshalIndent(value, "", "    ")
	if err == nil && c.output == outputYAML {
		data, err = yaml.JSONToYAML(data)
	} else {
		data = append(data, '\n')
	}
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

// follow shows what there is, and then each change. When the host has forgotten
// where it was, it starts again.
func (c *getConfig) follow(ctx context.Context, client *api.Client, chosen selection, out io.Writer) error {
	rows := newTable(out, chosen.tableKind, c.style(false))
	shown := map[string]string{} // versions by key
	options := c.options()
	for {
		err := client.Watch(ctx, chosen.kind, options, func(event api.WatchEvent) error {
			object := event.Object
			if len(chosen.names) > 0 && !slices.Contains(chosen.names, object.GetName()) {
				return nil
			}
			key := store.KeyOf(object)
			if shown[key] == object.GetResourceVersion() && event.Type != watch.Deleted {
				return nil
			}
			if shown[key] = object.GetResourceVersion(); event.Type == watch.Deleted {
				delete(shown, key)
			}
			if c.isDocument() || c.output == outputName {
				return c.one(out, chosen.tableKind, object)
			}
			return rows.write([]store.Object{object}, time.Now())
		})
		if !errors.Is(err, store.ErrExpired) {
			return err
		}
	}
}

func (c *getConfig) one(out io.Writer, kind tableKind, object store.Object) error {
	if c.output == outputName {
		return c.write(out, kind, []store.Object{object}, c.style(false))
	}
	if c.output == outputYAML {
		if _, err := io.WriteString(out, "---\n"); err != nil {
			return err
		}
	}
	return c.document(out, []store.Object{object}, true)
}
