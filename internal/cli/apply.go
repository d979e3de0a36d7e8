package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// waitLimit is the default of --timeout, how long --wait waits.
const waitLimit = 5 * time.Minute

type applyConfig struct {
	hostClient
	files   []string
	dryRun  bool
	wait    bool
	timeout time.Duration
}

func newApplyCommand() *cobra.Command {
	var c applyConfig
	command := &cobra.Command{
		Use:   "apply -f FILE…",
		Short: "Give the running host objects, all of them or none",
		Long: `Give the running host objects from Kubernetes manifests: all of them, or none if
one cannot be. An object that exists is changed where that is possible; a field
that cannot be changed is named.

--wait shows the steps until claims are bound, snapshots are ready, and pods run
or have ended. A claim that waits for its first pod is not waited for.`,
		Example: `  holdfast apply -f claim.yaml
  holdfast apply -f manifests/ --wait
  cat claim.yaml | holdfast apply -f - --dry-run`,
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error { return c.run(command) },
	}
	flags := command.Flags()
	c.bind(flags)
	flags.StringArrayVarP(&c.files, "filename", "f", nil,
		"manifest `FILE` or directory, - for standard input; may be repeated")
	flags.BoolVar(&c.dryRun, "dry-run", false, "check everything and change nothing")
	flags.BoolVar(&c.wait, "wait", false, "wait until the objects are ready")
	flags.DurationVar(&c.timeout, "timeout", waitLimit, "how long --wait waits")
	return command
}

func (c *applyConfig) run(command *cobra.Command) error {
	if c.dryRun && c.wait {
		return usageErrorf("--wait cannot be used with --dry-run, which creates no objects")
	}
	if c.timeout < 0 {
		return usageErrorf("--timeout %s: a time is not below zero", c.timeout)
	}
	files, err := readManifests(command, c.files)
	if err != nil {
		return err
	}
	client := c.dial()
	defer client.Close()
	before := uint64(0)
	if c.wait {
		if before, err = client.JournalSequence(command.Context()); err != nil {
			return err
		}
	}
	result, err := client.Apply(command.Context(), files, api.ApplyOptions{DryRun: c.dryRun})
	if err != nil {
		return duringApply(command.Context(), err)
	}
	if err := c.report(command, result); err != nil || !c.wait {
		return err
	}
	return c.await(command, client, result, before)
}

func (c *applyConfig) report(command *cobra.Command, result api.ApplyResult) error {
	for _, warning := range result.Warnings {
		command.PrintErrln("Warning: " + printable(warning))
	}
	note := ""
	if c.dryRun {
		note = " (dry run)"
	}
	for _, applied := range result.Applied {
		name := applied.Key
		if _, after, namespaced := strings.Cut(applied.Key, "/"); namespaced {
			name = after
		}
		kind := strings.ToLower(applied.Kind)
		if known, ok := kindNamed(applied.Kind); ok {
			kind = singular(known)
		}
		if _, err := fmt.Fprintf(command.OutOrStdout(), "%s/%s %s%s\n", kind, name, applied.Action, note); err != nil {
			return err
		}
	}
	return nil
}

// kindNamed finds a kind by the field kind of its objects.
func kindNamed(name string) (store.Kind, bool) {
	for _, kind := range store.Kinds() {
		if kind.Kind == name {
			return kind, true
		}
	}
	return store.Kind{}, false
}
