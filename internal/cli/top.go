package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/top"
)

const topHelp = `Show what the mounted volumes and the drivers of the running host do: bytes and
requests in a second, the mean time of a request, the part of the time in which a
request runs, and how full each volume is. The figures are those of the volumes'
block devices, whatever driver made them; a volume without one, such as a network's
filesystem, has only its use.

On a terminal the tables are live. Keys: q ends, s and S choose what they are sorted by,
/ filters by words, n goes through the namespaces, up, down, page up and page down
scroll. Elsewhere, and with --plain, the tables are printed once an interval.`

// topLimit bounds one question to the host.
const topLimit = 10 * time.Second

// The limits of --interval: the host asks drivers no more often than every ten seconds,
// and counters of the kernel have a resolution of 1 ms.
const (
	shortestInterval = 100 * time.Millisecond
	longestInterval  = time.Hour
)

type topConfig struct {
	hostClient
	interval time.Duration
	sort     string
	filter   string
	output   string
	once     bool
	plain    bool

	key top.Key
}

func newTopCommand() *cobra.Command {
	var c topConfig
	command := &cobra.Command{
		Use:   "top",
		Short: "Show the volumes of the running host by what they read and write",
		Long:  topHelp,
		Example: `  holdfast top
  holdfast top --sort latency -n default
  holdfast top --once -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error { return c.run(command) },
	}
	flags := command.Flags()
	c.bind(flags)
	flags.StringVarP(&c.namespace, "namespace", "n", "", "only volumes of this `NAMESPACE`")
	flags.DurationVar(&c.interval, "interval", 2*time.Second, "time between two samples")
	flags.StringVar(&c.sort, "sort", string(top.SortIO), "sort by `KEY`: io, read, write, iops, latency, busy, used or name")
	flags.StringVar(&c.filter, "filter", "", "only volumes with these `WORDS` in their name, driver, device or pods")
	flags.StringVarP(&c.output, "output", "o", "", "`FORM`: json, one report a line")
	flags.BoolVar(&c.once, "once", false, "take two samples, print, and end")
	flags.BoolVar(&c.plain, "plain", false, "print tables, also on a terminal")
	c.completeFlags(command)
	var keys []string
	for _, key := range top.Keys() {
		keys = append(keys, string(key))
	}
	completeValues(command, "sort", keys)
	completeValues(command, "output", []string{outputJSON})
	return command
}

func (c *topConfig) run(command *cobra.Command) (err error) {
	if c.key, err = top.ParseKey(c.sort); err != nil {
		return usageErrorf("--sort %w", err)
	}
	switch {
	case c.output != "" && c.output != outputJSON:
		return usageErrorf("-o %q is not json", c.output)
	case c.interval < shortestInterval || c.interval > longestInterval:
		return usageErrorf("--interval %s is not between %s and %s", c.interval, shortestInterval, longestInterval)
	}
	client := c.dial()
	defer client.Close()
	first, err := c.sample(command.Context(), client)
	if err != nil {
		return err
	}
	in, out, live := c.terminal(command)
	if live {
		return c.live(command.Context(), in, out, client, first)
	}
	return ended(command.Context(), c.print(command.Context(), command.OutOrStdout(), client, first))
}

// terminal returns the terminal that shows the live tables, if there is one.
func (c *topConfig) terminal(command *cobra.Command) (in, out *os.File, live bool) {
	in, reads := command.InOrStdin().(*os.File)
	out, writes := command.OutOrStdout().(*os.File)
	live = reads && writes && !c.plain && !c.once && c.output == "" && os.Getenv("TERM") != "dumb" &&
		term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
	return in, out, live
}

func (c *topConfig) sample(ctx context.Context, client *api.Client) (top.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, topLimit)
	defer cancel()
	activity, err := client.Activity(ctx)
	if err != nil {
		return top.Sample{}, err
	}
	pools, err := client.Pools(ctx)
	return top.Sample{Activity: activity, Pools: pools}, err
}

// print prints a report once an interval.
func (c *topConfig) print(ctx context.Context, out io.Writer, client *api.Client, before top.Sample) error {
	for {
		if err := concurrency.Sleep(ctx, c.interval); err != nil {
			return err
		}
		now, err := c.sample(ctx, client)
		if err != nil {
			return err
		}
		if err := c.printOne(out, top.New(before, now)); err != nil || c.once {
			return err
		}
		before = now
	}
}

func (c *topConfig) printOne(out io.Writer, report top.Report) error {
	selected := report.Select(c.namespace, c.filter, c.key)
	if c.output == outputJSON {
		report.Volumes = selected
		line, err := json.Marshal(report)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", line)
		}
		return err
	}
	end := "\n"
	if c.once {
		end = ""
	}
	tables := topTables{report: report, volumes: selected}
	text := tables.heading() + "\n\n" + alignedText(tables.drivers()) + "\n"
	if len(report.Pools) > 0 {
		text += alignedText(tables.pools()) + "\n"
	}
	_, err := io.WriteString(out, text+alignedText(tables.rows())+end)
	return err
}
