//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/test/ebs/lab"
)

func render(driver string, volumes int, r results) string {
	var t strings.Builder
	fmt.Fprintf(&t, "\n%s, %d volumes\n\n", driver, volumes)
	t.WriteString("| Work | wall | p50 | p99 | EC2 calls | of which |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, p := range r.phases {
		if strings.HasSuffix(p.name, " again") {
			continue // makes and removes the volumes of the phase between
		}
		fmt.Fprintf(&t, "| %s | %s | %s | %s | %d | %s |\n",
			p.name, seconds(p.wall), seconds(p.p50), seconds(p.p99), p.calls.Total(), byAction(p.calls))
	}
	for _, s := range r.single {
		fmt.Fprintf(&t, "| %s, alone | %s | | | | |\n", s.name, seconds(s.took))
	}
	fmt.Fprintf(&t, "| resident, idle / peak | %d MiB / %d MiB | | | | |\n", r.idle>>20, r.peak>>20)
	return t.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func byAction(calls lab.Calls) string {
	var parts []string
	for _, action := range slices.Sorted(maps.Keys(calls)) {
		if calls[action] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", action, calls[action]))
		}
	}
	return strings.Join(parts, ", ")
}
