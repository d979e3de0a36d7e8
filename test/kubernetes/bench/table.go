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

// writeReport puts the table into the page, and leaves the rest of that alone.
func writeReport(path, table string, s settings) error {
	machine, err := machine()
	if err != nil {
		return err
	}
	conditions := fmt.Sprintf("%d claims, %d objects of each kind, %d pods; %s.", s.claims, s.objects, s.pods, machine)
	if len(s.alternatives) > 0 {
		conditions += fmt.Sprintf(" In the same run, %s: %s.", s.alternative, s.commands())
	}
	return replaceReport(path, "make bench-kubernetes", conditions+"\n\n"+table)
}

// machine describes the machine.
func machine() (string, error) {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d cores, Linux %s", runtime.NumCPU(), strings.TrimSpace(string(kernel))), err
}

// replaceReport replaces the part of a page between the comments that begin and end it.
func replaceReport(path, name, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->", "<!-- end of "+name+" -->"
	before, rest, begins := strings.Cut(string(page), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return errors.New(path + " has no lines " + begin + " and " + end)
	}
	return os.WriteFile(path, []byte(before+begin+"\n\n"+text+"\n"+end+after), 0o644)
}
