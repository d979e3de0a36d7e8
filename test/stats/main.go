// Command stats prints the size and shape of the tree: `make stats`. What each
// line counts is in docs/reference/verification.md.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-csi/holdfast/internal/archtest"
)

func main() {
	root := flag.String("root", ".", "the root `DIRECTORY` of the module")
	binary := flag.String("binary", "", "the stripped `FILE` of the command; no line for it if empty")
	flag.Parse()
	if err := run(os.Stdout, *root, *binary); err != nil {
		fmt.Fprintln(os.Stderr, "stats:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, root, binary string) error {
	packages, err := readTree(root)
	if err != nil {
		return err
	}
	s := measure(packages)
	rows := [][2]string{
		{"product lines (cmd, internal, proto)", fmt.Sprint(s.productLines)},
		{"simulators and helpers of tests, lines", fmt.Sprint(s.simulatorLines)},
		{"generated lines", fmt.Sprint(s.generatedLines)},
		{"hand-written test lines (cmd, internal, proto, simulation)", fmt.Sprint(s.testLines)},
		{"lines below test, deploy and tools", fmt.Sprint(s.otherLines)},
		{"product packages", fmt.Sprint(s.packages)},
		{"packages under 100 lines / with one importer", fmt.Sprintf("%d / %d", s.small, s.oneImporter)},
		{"functions median / p90 / max, lines", fmt.Sprintf("%d / %d / %d", s.quantile(50), s.quantile(90), s.quantile(100))},
		{"upward arrows", fmt.Sprint(len(s.upward))},
	}
	if binary != "" {
		file, err := os.Stat(binary)
		if err != nil {
			return fmt.Errorf("measure the binary: %w; build it first", err)
		}
		rows = append(rows, [2]string{"binary", fmt.Sprintf("%.1f MB", float64(file.Size())/1e6)})
	}
	return printTable(out, rows, s.upward)
}

func printTable(out io.Writer, rows [][2]string, upward []archtest.Arrow) error {
	text := "| | now |\n| --- | --- |\n"
	for _, row := range rows {
		text += fmt.Sprintf("| %s | %s |\n", row[0], row[1])
	}
	for _, arrow := range upward {
		text += fmt.Sprintf("\n- upward: `%s` imports `%s`", arrow.From, arrow.To)
	}
	if len(upward) > 0 {
		text += "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}
