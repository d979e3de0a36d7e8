package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/bugreport"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
)

const bugreportHelp = `Write one archive with what a developer asks for first: versions, configuration,
objects, the journal, what the host's goroutines do, and the kernel's view of mounts
and devices. Secrets are redacted: the values of Secrets, ConfigMaps and variables,
commands, attributes of inline volumes, passwords in URLs, and the values of names
such as password or token.

The command lists what the archive will have before it writes it, and asks on a
terminal. Elsewhere it writes with --yes only. It works without a running host: what that
would answer is missing then, and the list says so.

With --kubeconfig or --context it is about a cluster: the storage objects, events,
Leases and intents, and the pods of Holdfast with their logs. A kind that you may not
read is missing, and the list says so.`

// bugreportConfig are the flags of bugreport.
type bugreportConfig struct {
	target
	file string
	yes  bool
}

// newBugreportCommand is the command of holdfast, or that of the kubectl plugin.
func newBugreportCommand(version string, plugin bool) *cobra.Command {
	c := bugreportConfig{target: target{plugin: plugin}}
	command := &cobra.Command{
		Use:     "bugreport",
		Short:   "Write an archive for a bug report, redacted",
		Long:    bugreportHelp,
		Example: "  sudo holdfast bugreport\n  sudo holdfast bugreport --yes -o /tmp/report.tar.gz\n  holdfast bugreport --kubeconfig ~/.kube/config -n kube-system",
		Args:    arguments(cobra.NoArgs),
		RunE:    func(command *cobra.Command, _ []string) error { return c.run(command, version) },
	}
	flags := command.Flags()
	c.bind(flags)
	flags.StringVarP(&c.file, "output", "o", "", "`FILE` of the archive (default: holdfast-report-TIME.tar.gz in this directory)")
	flags.StringVarP(&c.host.namespace, "namespace", "n", "", "`NAMESPACE` of Holdfast's pods in the cluster (default: all namespaces)")
	flags.BoolVar(&c.yes, "yes", false, "write it without asking")
	return command
}

func (c *bugreportConfig) run(cobraCommand *cobra.Command, version string) error {
	sources, done, err := c.sources(cobraCommand)
	if err != nil {
		return err
	}
	defer done()
	binary := fmt.Sprintf("holdfast %s\n%s %s/%s\n", versionOrBuild(version), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	entries := bugreport.Collect(cobraCommand.Context(),
		append(bugreport.Static("version.txt", "version of this program", []byte(binary)), sources...))
	if err := bugreport.List(cobraCommand.OutOrStdout(), entries); err != nil {
		return err
	}
	if !c.yes && !confirmed(cobraCommand) {
		cobraCommand.PrintErrln("Nothing is written; --yes writes it.")
		return nil
	}
	now := time.Now()
	name := "holdfast-report-" + now.UTC().Format("20060102T150405Z")
	if c.file == "" {
		c.file = name + ".tar.gz"
	}
	if err := writeArchive(c.file, func(out io.Writer) error { return bugreport.Write(out, name, now, entries) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cobraCommand.OutOrStdout(), "%s is written; read it before you send it\n", c.file)
	return err
}

// sources are those of a host with its machine, or of a cluster.
func (c *bugreportConfig) sources(cobraCommand *cobra.Command) (sources []bugreport.Source, done func(), err error) {
	if c.isCluster() {
		config, _, err := c.load(cobraCommand)
		if err != nil {
			return nil, nil, err
		}
		reader, done, err := clusterReader(config, "holdfast-bugreport")
		if err != nil {
			return nil, nil, err
		}
		return bugreport.Cluster(cobraCommand.Context(), reader, c.host.namespace), done, nil
	}
	if c.host.namespace != "" {
		return nil, nil, usageErrorf("--namespace is of a cluster: name it with --kubeconfig or --context")
	}
	root, err := c.host.directory()
	if err != nil {
		return nil, nil, err
	}
	client := c.host.dial()
	return append(bugreport.Host(client), bugreport.Machine(root, command.NewSystem())...), client.Close, nil
}

// confirmed asks on a terminal; elsewhere the answer is no.
func confirmed(command *cobra.Command) bool {
	return isTerminal(command.InOrStdin()) && confirms(command, "Write the archive? [y/N] ")
}

// writeArchive writes a file that is new, and that its owner alone may read.
func writeArchive(name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(name))
	}
	return nil
}
