//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is one line of the table: Holdfast's time, the alternative's time, and the aim.
type row struct {
	work, holdfast, alternative, measured, ratio, aim string
}

func render(rows []row) string {
	var text strings.Builder
	text.WriteString("| Work | Holdfast | Alternative | took | Ratio | Aim |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s |\n", r.work, r.holdfast, r.alternative, r.measured, r.ratio, r.aim)
	}
	return text.String()
}

// times makes a row of two durations; below 1 Holdfast is the faster.
func times(work string, holdfast time.Duration, alternative string, other time.Duration, aim string) row {
	return row{work, millis(holdfast), alternative, millis(other), ratio(float64(holdfast), float64(other)), aim}
}

func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func median(samples []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}

// repeat runs step some rounds and gives the median time.
func repeat(rounds int, step func(round int) (time.Duration, error)) (time.Duration, error) {
	samples := make([]time.Duration, 0, rounds)
	for round := range rounds {
		took, err := step(round)
		if err != nil {
			return 0, err
		}
		samples = append(samples, took)
	}
	return median(samples), nil
}

// clock times one step.
func clock(step func() error) (time.Duration, error) {
	start := time.Now()
	err := step()
	return time.Since(start), err
}

// The page after the first of these headings is not this command's: the tables
// of Kubernetes (make bench-kubernetes) are there.
const otherPart = "\n## Kubernetes\n"

// writeReport writes the page up to the part of another command.
func writeReport(path, table string, s settings) error {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	page, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_, kept, found := strings.Cut(string(page), otherPart)
	if found {
		kept = otherPart + kept
	}
	text := fmt.Sprintf(`# Benchmarks

Written by `+"`make bench`"+`: each line measures Holdfast and a named alternative in
the same run, %d rounds, the median of each. Compare the ratios, not the
milliseconds: the machine is shared (%d cores, Linux %s). For times a ratio
below 1 means that Holdfast is faster; for rates, above 1.

![Ratios of the table below, as bars](benchmarks/local.svg)

%s
## What the lines mean

- *tools* means the same steps by the usual programs (losetup, blkid,
  mount, umount, resize2fs), one process each, as drivers do that call them.
- *Damaged and foreign images* are counted, not timed: how many of them each way to
  find a blank device would format. Below 1 Holdfast formats fewer; 0 is the aim. A dash
  is a row that has no alternative, or that this machine cannot measure.
- Pools: *plain* is a directory on the machine's own filesystem; *image* is a
  pool image, xfs with reflink in one file on it.
- *host* is `+"`holdfast host`"+`; its alternative is the same calls to the same driver, by a
  program that writes nothing down and decides nothing. Memory is what is
  resident when nothing has been done for ten seconds.
- The data path compares a volume with a file of the same size on the pool's
  filesystem, both by fio with direct I/O.
`, s.rounds, runtime.NumCPU(), strings.TrimSpace(string(kernel)), table)
	return os.WriteFile(path, []byte(text+kept), 0o644)
}
