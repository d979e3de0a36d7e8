package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/quantity"
)

const createHelp = `Make one object without a manifest. Repeating the command changes nothing; an object
of that name that differs in a given field is an error, which names the field.

The object is as one of 'holdfast apply': a later apply of a manifest of its name
changes it to what the manifest says.`

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunServer = "server"
	dryRunClient = "client"
)

// creation are the flags of the commands that make or change one object.
type creation struct {
	applyConfig
	dry    string
	output string
	labels string
}

func newCreateCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "create", Short: "Make a claim or a snapshot, in one line", Long: createHelp, Args: unknownCommand,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newCreateClaimCommand(), newCreateSnapshotCommand())
	return command
}

func (c *creation) bindAll(command *cobra.Command) {
	flags := command.Flags()
	c.bind(flags)
	c.bindNamespace(flags)
	c.bindWrite(flags)
	c.completeFlags(command)
	completeValues(command, "output", []string{outputYAML, outputJSON, outputName})
	completeValues(command, "dry-run", []string{dryRunServer, dryRunClient, dryRunNone})
}

func (c *creation) bindWrite(flags *pflag.FlagSet) {
	flags.StringVar(&c.dry, "dry-run", dryRunNone,
		"`WHERE`: server (the host checks the object and stores nothing), client (no host is asked) or none")
	flags.Lookup("dry-run").NoOptDefVal = dryRunServer
	flags.StringVarP(&c.output, "output", "o", "",
		"`FORM`: yaml, json or name of the object; with --dry-run of the manifest")
	flags.BoolVar(&c.wait, "wait", false, "wait until the object is ready")
	flags.DurationVar(&c.timeout, "timeout", waitLimit, "how long --wait waits")
}

func (c *creation) bindLabels(flags *pflag.FlagSet) {
	flags.StringVarP(&c.labels, "labels", "l", "", "`KEY=VALUE,…`: labels of the object")
}

func (c *creation) check() error {
	switch {
	case !slices.Contains([]string{dryRunNone, dryRunServer, dryRunClient}, c.dry):
		return usageErrorf("--dry-run=%s is none of server, client and none", c.dry)
	case !slices.Contains([]string{"", outputYAML, outputJSON, outputName}, c.output):
		return usageErrorf("-o %q is none of yaml, json and name", c.output)
	case c.dry != dryRunNone && c.wait:
		return usageErrorf("--wait cannot be used with --dry-run, which creates no objects")
	case c.timeout < 0:
		return usageErrorf("--timeout %s: a time is not below zero", c.timeout)
	}
	c.dryRun = c.dry != dryRunNone
	return nil
}

// label reads --labels.
func (c *creation) label() (map[string]string, error) {
	if c.labels == "" {
		return nil, nil
	}
	set, err := labels.ConvertSelectorToLabelsMap(c.labels)
	if err != nil {
		return nil, usageErrorf("--labels %q: %w", c.labels, err)
	}
	return set, nil
}

// write applies one object, prints the result and waits, as the flags say.
func (c *creation) write(command *cobra.Command, client *api.Client, kind store.Kind, object store.Object, fresh bool) error {
	data, err := manifestOf(kind, object)
	if err != nil {
		return err
	}
	file := manifest.File{Name: ownFile, Data: data}
	if c.dry == dryRunClient {
		if _, err := manifest.Decode([]manifest.File{file}); err != nil {
			return ownFileError{err}
		}
		return c.show(command, client, kind, object, data, api.ApplyResult{Applied: []api.Applied{{
			Kind: kind.Kind, Key: store.KeyOf(object), Action: api.Created}}})
	}
	before := uint64(0)
	if c.wait {
		if before, err = client.JournalSequence(command.Context()); err != nil {
			return err
		}
	}
	result, err := client.Apply(command.Context(), []manifest.File{file}, api.ApplyOptions{DryRun: c.dryRun, Create: fresh})
	if err != nil {
		return ownFileError{duringApply(command.Context(), err)}
	}
	if err := c.show(command, client, kind, object, data, result); err != nil || !c.wait {
		return err
	}
	return c.await(command, client, result, before)
}

// show prints what was done, or the object.
func (c *creation) show(
	command *cobra.Command, client *api.Client, kind store.Kind, object store.Object, data []byte, result api.ApplyResult,
) error {
	switch {
	case c.output == outputName:
		_, err := fmt.Fprintln(command.OutOrStdout(), singular(kind)+"/"+object.GetName())
		return err
	case c.output == "":
		return c.report(command, result)
	case c.dryRun:
		return c.printManifest(command, data)
	}
	stored, err := client.Get(command.Context(), kind, object.GetNamespace(), object.GetName())
	if err != nil {
		return err
	}
	reader := getConfig{output: c.output}
	return reader.document(command.OutOrStdout(), []store.Object{stored}, true)
}

func (c *creation) printManifest(command *cobra.Command, data []byte) (err error) {
	if c.output == outputJSON {
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return err
		}
		data = append(data, '\n')
	}
	_, err = command.OutOrStdout().Write(data)
	return err
}

// manifestOf writes an object as a user would: without a status.
func manifestOf(kind store.Kind, object store.Object) ([]byte, error) {
	object.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	return yaml.Marshal(fields)
}

// parseSize reads a size such as 10Gi.
func parseSize(what, text string) (resource.Quantity, error) {
	size, err := quantity.Parse(text)
	if err != nil || size.Sign() <= 0 {
		return size, usageErrorf("%s %q is not a size above 0, such as 10Gi", what, text)
	}
	return size, nil
}

// trimKind removes the kind of KIND/NAME, if it is one of these words.
func trimKind(text string, words ...string) string {
	if kind, name, both := strings.Cut(text, "/"); both && slices.Contains(words, kind) {
		return name
	}
	return text
}

// ownFile stands for the manifest that a command makes itself.
const ownFile = "this command"

// ownFileError is an error about ownFile, which the user has not written.
type ownFileError struct{ error }

func (e ownFileError) Error() string {
	return strings.ReplaceAll(e.error.Error(), ownFile+": document 1: ", "")
}

// Unwrap returns the error as it came.
func (e ownFileError) Unwrap() error { return e.error }
