// Command plot draws the tables of docs/reference/benchmarks.md as SVG pictures
// next to the page. It draws the page's numbers and measures nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

func main() {
	page := flag.String("page", "docs/reference/benchmarks.md", "the page with the tables")
	out := flag.String("out", "docs/reference/benchmarks", "the directory of the pictures")
	flag.Parse()
	if err := run(*page, *out); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(page, out string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	found := sections(string(text))
	return errors.Join(
		drawRatios(found, "", "One machine", filepath.Join(out, "local.svg")),
		drawRatios(found, "Kubernetes", "Kubernetes, upstream's sidecars next to it", filepath.Join(out, "kubernetes.svg")),
		drawMultiples(found, "Many nodes", out),
		drawPairs(found, "EBS", "p50", "EBS, 500 volumes: p50 in seconds", filepath.Join(out, "ebs-latency.svg")),
		drawPairs(found, "EBS", "EC2 calls", "EBS, 500 volumes: EC2 calls", filepath.Join(out, "ebs-calls.svg")),
	)
}

func tablesOf(found []section, heading string) []table {
	for _, s := range found {
		if s.heading == heading {
			return s.tables
		}
	}
	return nil
}

// drawRatios draws the first table of a section that has ratios.
func drawRatios(found []section, heading, title, path string) error {
	for _, t := range tablesOf(found, heading) {
		if t.column("Ratio") >= 0 {
			return save(ratioPlot(title, ratios(t)), len(t.rows), path)
		}
	}
	return fmt.Errorf("section %q has no table with a column Ratio", heading)
}

// drawMultiples draws each titled table of a section that has columns to compare: a title
// of "20000 volumes" leads to many-20000-volumes.svg.
func drawMultiples(found []section, heading, out string) error {
	var failed []error
	for _, t := range tablesOf(found, heading) {
		base, all := multiples(t)
		if t.title == "" || len(all) == 0 {
			continue
		}
		if len(all[0].bars) == 0 {
			failed = append(failed, fmt.Errorf("%q has no row with numbers in all columns", t.title))
			continue
		}
		path := filepath.Join(out, "many-"+strings.ReplaceAll(t.title, " ", "-")+".svg")
		failed = append(failed, save(multiplePlot("Many nodes, "+t.title, base, all), 2*len(all[0].bars), path))
	}
	return errors.Join(failed...)
}

// drawPairs draws one column of the first two titled tables of a section, those
// of Holdfast and of the other driver with the same number of volumes.
func drawPairs(found []section, heading, column, title, path string) error {
	var titled []table
	for _, t := range tablesOf(found, heading) {
		if t.title != "" {
			titled = append(titled, t)
		}
	}
	if len(titled) < 2 {
		return fmt.Errorf("section %q has %d tables with a title; want those of two programs", heading, len(titled))
	}
	drawn, groups, err := pairPlot(title, column, titled[0], titled[1])
	if err != nil {
		return err
	}
	return save(drawn, 2*groups, path)
}

func save(p *plot.Plot, bars int, path string) error {
	writer, err := p.WriterTo(24*vg.Centimeter, vg.Length(bars)*0.62*vg.Centimeter+3*vg.Centimeter, "svg")
	if err != nil {
		return err
	}
	var text strings.Builder
	if _, err := writer.WriteTo(&text); err != nil {
		return err
	}
	// Viewers that lack the font must not fall back to one with serifs.
	svg := strings.ReplaceAll(text.String(), "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	return os.WriteFile(path, []byte(svg), 0o644)
}
