package cli

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	human "k8s.io/apimachinery/pkg/util/duration"

	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/top"
)

// topTables are the tables of one report.
type topTables struct {
	report  top.Report
	volumes []top.Volume // those that are shown, in their order
}

func (t topTables) heading() string {
	var sum top.Rates
	for _, driver := range t.report.Drivers {
		sum.ReadBytes += driver.Rates.ReadBytes
		sum.WrittenBytes += driver.Rates.WrittenBytes
		sum.Reads += driver.Rates.Reads
		sum.Writes += driver.Rates.Writes
	}
	return fmt.Sprintf("%s  %s of %d mounted shown  read %s/s  write %s/s  %s requests/s",
		t.report.At.Local().Format(time.TimeOnly), counted(len(t.volumes), "volume"), len(t.report.Volumes),
		rate(sum.ReadBytes), rate(sum.WrittenBytes), perSecond(sum.Reads+sum.Writes))
}

func counted(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", count, what)
}

// drivers has a row for each driver.
func (t topTables) drivers() [][]string {
	rows := [][]string{{"DRIVER", "STATE", "VOLUMES", "MOUNTED", "READ/S", "WRITE/S", "REQUESTS/S", "LATENCY", "PROMISED",
		"AVAILABLE"}}
	for _, driver := range t.report.Drivers {
		available := unknown
		if driver.Available != nil {
			available = progress.Size(*driver.Available)
		}
		rates := driver.Rates
		rows = append(rows, []string{
			printable(driver.Name), driver.State, fmt.Sprint(driver.Volumes), fmt.Sprint(driver.Mounted),
			rate(rates.ReadBytes), rate(rates.WrittenBytes), perSecond(rates.Reads + rates.Writes), latency(rates.Latency()),
			progress.Size(driver.Promised), available,
		})
	}
	return rows
}

// pools has a row for each pool of the host's own driver.
func (t topTables) pools() [][]string {
	rows := [][]string{{"POOL", "SIZE", "USED", "AVAILABLE", "PROMISED", "FULL IN"}}
	for _, pool := range t.report.Pools {
		if pool.Size <= 0 { // it cannot be read
			rows = append(rows, []string{printable(pool.Name), unknown, unknown, unknown, unknown, unknown})
			continue
		}
		full := unknown
		if pool.FullSeconds != nil {
			full = human.HumanDuration(time.Duration(*pool.FullSeconds) * time.Second)
		}
		rows = append(rows, []string{
			printable(pool.Name), progress.Size(pool.Size), percent(1 - float64(pool.Available)/float64(pool.Size)),
			progress.Size(pool.Available), progress.Size(pool.Promised), full,
		})
	}
	return rows
}

// unknown stands for a figure that is not known.
const unknown = "-"

// rows has a row for each volume.
func (t topTables) rows() [][]string {
	rows := [][]string{{"NAMESPACE", "NAME", "DEVICE", "READ/S", "WRITE/S", "READS/S", "WRITES/S", "READ LATENCY",
		"WRITE LATENCY", "BUSY", "USED", "SIZE"}}
	for _, volume := range t.volumes {
		row := []string{volume.Namespace, volume.Name, volume.Device}
		if rates := volume.Rates; rates != nil {
			row = append(row, rate(rates.ReadBytes), rate(rates.WrittenBytes), perSecond(rates.Reads), perSecond(rates.Writes),
				latency(rates.ReadLatency), latency(rates.WriteLatency), percent(rates.Busy))
		} else {
			row = append(row, unknown, unknown, unknown, unknown, unknown, unknown, unknown)
		}
		used, size := unknown, unknown
		if part := volume.Used(); part >= 0 {
			used = percent(part)
		}
		if volume.Bytes != nil {
			size = progress.Size(volume.Bytes.Total)
		}
		row = append(row, used, size)
		for i, cell := range row {
			row[i] = cmp.Or(printable(cell), unknown)
		}
		rows = append(rows, row)
	}
	return rows
}

func rate(bytes float64) string { return progress.Size(int64(bytes)) }

// perSecond has a digit behind the point only where it says something.
func perSecond(n float64) string {
	if n > 0 && n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

func latency(d time.Duration) string {
	switch {
	case d == 0:
		return unknown
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", math.Floor(100*part)) }

// alignedText is a table with aligned columns.
func alignedText(rows [][]string) string {
	widths := widen(nil, rows)
	var text strings.Builder
	for _, row := range rows {
		writeRow(&text, row, widths, unpainted)
	}
	return text.String()
}
