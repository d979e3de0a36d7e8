//go:build linux

// Command bench measures Holdfast and named alternatives in one run on one machine,
// and prints a table of ratios. Compare ratios, not times, between runs. It needs root,
// the tools of test/install-packages and about 30 GiB below -scratch.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the values of the command line.
type settings struct {
	holdfast string
	scratch  string
	only     string
	large    int64 // bytes of the large data set
	rounds   int
	volumes  int // of the group with many volumes
	staged   int // of them
	fioTime  time.Duration
}

func run(ctx context.Context) (err error) {
	var s settings
	var report string
	flag.StringVar(&s.holdfast, "holdfast", "bin/holdfast", "the binary to measure")
	flag.StringVar(&s.scratch, "scratch", "/var/tmp", "where pools are made and removed again")
	flag.StringVar(&s.only, "only", "", "measure only this group: blank, stage, create, snapshot, data, concurrent, many, account, run, host")
	flag.StringVar(&report, "write", "", "also write the table to this Markdown file")
	flag.IntVar(&s.rounds, "rounds", 15, "repetitions of each step; the median counts")
	flag.DurationVar(&s.fioTime, "fio-time", 8*time.Second, "how long each fio job runs")
	flag.IntVar(&s.volumes, "volumes", 5000, "volumes of the group many")
	flag.IntVar(&s.staged, "staged", 900, "how many of them are staged and published: as many loop devices are needed")
	largeGiB := flag.Int64("large-gib", 10, "size of the large data set, in GiB")
	flag.Parse()
	s.large = *largeGiB << 30
	if os.Geteuid() != 0 {
		return errors.New("loop devices and mounts need root: run make bench")
	}
	if s.holdfast, err = filepath.Abs(s.holdfast); err != nil {
		return err
	}
	if s.scratch, err = os.MkdirTemp(s.scratch, "holdfast-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.scratch)) }()
	rows, err := measure(ctx, s)
	if err != nil {
		return err
	}
	table := render(rows)
	fmt.Print(table)
	if report == "" {
		return nil
	}
	return writeReport(report, table, s)
}

func measure(ctx context.Context, s settings) ([]row, error) {
	var rows []row
	for _, group := range []struct {
		name    string
		measure func(context.Context, settings) ([]row, error)
	}{
		{"blank", measureBlank},
		{"stage", measureStage},
		{"create", measureCreate},
		{"snapshot", measureSnapshot},
		{"data", measureData},
		{"concurrent", measureConcurrent},
		{"many", measureMany},
		{"account", measureAccount},
		{"run", measureRun},
		{"host", measureHost},
	} {
		if s.only != "" && s.only != group.name {
			continue
		}
		fmt.Fprintln(os.Stderr, "bench: measuring", group.name)
		measured, err := group.measure(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", group.name, err)
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}
