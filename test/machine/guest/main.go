// Command guest is what the laboratory runs on a machine: the agent, and programs
// whose work can be checked after a reboot or a power cut.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `machine-guest agent                         runs the laboratory's requests
machine-guest write NAME FILE               appends numbered records, each with fsync, and reports them as NAME, if it is not -
machine-guest verify FILE                   prints the number of the last good record
machine-guest sql NAME FILE                 inserts numbered rows with sqlite3, and reports them as NAME
machine-guest scribble FILE                 writes to random places of a file without fsync, after a check of what is there
machine-guest churn PREFIX                  creates, copies and deletes claims and snapshots without end, and reports them`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "machine-guest:", err)
		_ = report("failed %v: %v", os.Args[1:], err) // without an agent there is only the journal
		os.Exit(1)                                    //nolint:gocritic // the process ends
	}
}

func run(ctx context.Context, arguments []string) error {
	commands := map[string]struct {
		count int
		run   func([]string) error
	}{
		"agent":    {0, func([]string) error { return serveAgent(ctx) }},
		"write":    {2, func(a []string) error { return writeRecords(ctx, a[0], a[1]) }},
		"verify":   {1, func(a []string) error { return verifyRecords(a[0]) }},
		"sql":      {2, func(a []string) error { return insertRows(ctx, a[0], a[1]) }},
		"scribble": {1, func(a []string) error { return scribble(ctx, a[0]) }},
		"churn":    {1, func(a []string) error { return churn(ctx, a[0]) }},
	}
	if len(arguments) > 0 {
		if c, ok := commands[arguments[0]]; ok && len(arguments) == 1+c.count {
			return c.run(arguments[1:])
		}
	}
	return fmt.Errorf("usage:\n%s", usage)
}
