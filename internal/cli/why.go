package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/why"
	"github.com/holdfast-csi/holdfast/internal/why/hostreader"
)

// The exit codes of why, next to those of every command.
const (
	exitWaits = 3
	exitStuck = 4
)

const whyHelp = `Explain why a pod, a claim, a volume or a snapshot is not ready: since when, which
call failed, with its code and count, and the remedy. The first line is the answer.

It asks the running host with the root directory --root, or with --kubeconfig a
cluster; there the namespace is that of the current context, unless -n names
another one. A volume is named by its driver's ID (volume/ID) or as PersistentVolume
(pv/NAME). It reads and changes nothing; of Secrets it only checks whether they
exist.

The exit code is 0 if it finds no reason to wait, 3 if the reason may end by
itself, and 4 if a person has to act.`

const whyExample = `  holdfast why pvc/data
  holdfast why pod/app -n shop --kubeconfig ~/.kube/config
  holdfast why volume/vol-7692c3ad3540bb80 -o json`

// whyFlags are the flags of the command why.
type whyFlags struct {
	target
	output string
}

// newWhyCommand is the command of holdfast, or that of the kubectl plugin.
func newWhyCommand(plugin bool) *cobra.Command {
	f := whyFlags{target: target{plugin: plugin}}
	command := &cobra.Command{
		Use:     "why KIND/NAME",
		Short:   "Explain why a volume is not ready, and what to do",
		Long:    whyHelp,
		Example: whyExample,
		Args:    one("what: KIND/NAME, such as pvc/data"),
		RunE:    func(command *cobra.Command, given []string) error { return f.run(command, given[0]) },
	}
	flags := command.Flags()
	f.bind(flags)
	f.host.bindNamespace(flags)
	flags.StringVarP(&f.output, "output", "o", "", "json, or text if it is not given")
	if !plugin {
		f.host.completeFlags(command)
	}
	completeValues(command, "output", []string{formatJSON})
	named := f.host.completeNamed("pod", "pvc", "pv", "volume", "snapshot")
	command.ValidArgsFunction = func(
		command *cobra.Command, given []string, begun string,
	) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return named(command, given, begun)
	}
	return command
}

func (f *whyFlags) run(command *cobra.Command, subject string) error {
	if f.output != "" && f.output != formatJSON {
		return usageErrorf("-o %s: want json, or nothing for text", f.output)
	}
	var config *rest.Config // of a cluster
	namespace := f.host.namespace
	if f.isCluster() {
		var err error
		if config, namespace, err = f.load(command); err != nil {
			return err
		}
	}
	asked, err := why.ParseSubject(subject, namespace)
	if err != nil {
		return &UsageError{Err: err}
	}
	reader, done, err := f.reader(command.Context(), config)
	if err != nil {
		return err
	}
	defer done()
	report, err := why.Ask(command.Context(), reader, asked)
	if err != nil {
		return err
	}
	write := func() error { return writeReport(command.OutOrStdout(), report, time.Now()) }
	if f.output == formatJSON {
		write = func() error { return writeJSON(command, report) }
	}
	if err := write(); err != nil {
		return err
	}
	return exitOf(report.State)
}

func exitOf(state why.State) error {
	switch state {
	case why.Waits:
		return ExitError{Code: exitWaits}
	case why.Stuck:
		return ExitError{Code: exitStuck}
	case why.Unknown:
		return ExitError{Code: exitFailed}
	}
	return nil
}

// reader reads a cluster, or the host if config is nil.
func (f *whyFlags) reader(ctx context.Context, config *rest.Config) (reader why.Reader, done func(), err error) {
	if config == nil {
		client := f.host.dial()
		if _, err := client.Version(ctx); err != nil {
			client.Close()
			return nil, nil, fmt.Errorf("%w (a cluster is asked with --kubeconfig FILE)", err)
		}
		return hostreader.New(client), client.Close, nil
	}
	return clusterReader(config, "holdfast-why")
}

// writeReport shows the answer first, each finding below it, and then the objects that
// could not be read.
func writeReport(out io.Writer, report why.Report, now time.Time) error {
	var text strings.Builder
	colours := painterOf(out)
	fmt.Fprintln(&text, colours.answer(report.State, printable(report.Answer())))
	for i, finding := range report.Findings {
		if i > 0 {
			fmt.Fprintf(&text, "\nalso: %s\n", printable(finding.What))
		}
		writeFinding(&text, colours, finding, now)
	}
	for _, note := range report.Notes {
		fmt.Fprintf(&text, "\nnote: %s\n", printable(note))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func writeFinding(out io.Writer, colours painter, f why.Finding, now time.Time) {
	line := func(label, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(out, "  %s %s\n", colours.heading(fmt.Sprintf("%-6s", label)), printable(text))
		}
	}
	if !f.Since.IsZero() {
		line("since", fmt.Sprintf("%s (%s)", f.Since.Local().Format(time.DateTime), age(metav1.NewTime(f.Since), now)))
	}
	failed := strings.TrimSpace(f.Call + " " + f.Code)
	switch {
	case f.Attempts == 1:
		failed = strings.TrimPrefix(failed+", once", ", ")
	case f.Attempts > 1:
		failed = strings.TrimPrefix(fmt.Sprintf("%s, %d times", failed, f.Attempts), ", ")
	}
	line("failed", failed)
	line("said", f.Error)
	for _, from := range f.Evidence {
		line("seen", from)
	}
	line("do", f.Do)
}
