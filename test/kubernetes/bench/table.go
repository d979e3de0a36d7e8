package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		for _, cell := range []*string{&r.alternative, &r.measured, &r.ratio, &r.aim} {
			if *cell == "" {
				*cell = "-"
			}
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s |\n", r.work, r.holdfast, r.alternative, r.measured, r.ratio, r.aim)
	}
	return text.String()
}

func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func megabytes(bytes int64) string   { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
func perSecond(rate float64) string  { return fmt.Sprintf("%.0f/s", rate) }
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func median(samples []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}

// commands lists the alternative's processes, without the directories they are in.
func (s settings) commands() string {
	var lines []string
	for _, command := range s.alternatives {
		words := strings.Fields(command)
		words[0] = filepath.Base(words[0])
		lines = append(lines, "`"+strings.Join(words, " ")+"`")
	}
	return strings.Join(lines, ", ")
}

// The report is the part of the page between these lines.
const (
	reportBegins = "<!-- make bench-kubernetes -->"
	reportEnds   = "<!-- end of make bench-kubernetes -->"
)

// writeReport puts the table into the page, and leaves the rest of that alone.
func writeReport(path, table string, s settings) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(page), reportBegins)
	_, after, ends := strings.Cut(rest, reportEnds)
	if !begins || !ends {
		return errors.New(path + " has no lines " + reportBegins + " and " + reportEnds)
	}
	conditions := fmt.Sprintf("%d claims, %d objects of each kind, %d pods; %d cores, Linux %s.",
		s.claims, s.objects, s.pods, runtime.NumCPU(), strings.TrimSpace(string(kernel)))
	if len(s.alternatives) > 0 {
		conditions += fmt.Sprintf(" In the same run, %s: %s.", s.alternative, s.commands())
	}
	text := before + reportBegins + "\n\n" + conditions + "\n\n" + table + "\n" + reportEnds + after
	return os.WriteFile(path, []byte(text), 0o644)
}
