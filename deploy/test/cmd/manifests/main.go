// Command manifests writes the plain manifests that are made from the chart.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-csi/holdfast/deploy/test/chart"
)

func main() {
	source := flag.String("chart", "../helm/holdfast", "`DIRECTORY` of the chart")
	target := flag.String("o", "../manifests", "`DIRECTORY` to write to")
	sidecars := flag.String("sidecars", "../helm/holdfast-sidecars/files", "`DIRECTORY` of the rules of the chart holdfast-sidecars")
	flag.Parse()
	err := write(*source, *target)
	if err == nil {
		err = writeAll(*sidecars, chart.SidecarRules())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func write(source, target string) error {
	loaded, err := chart.Load(source)
	if err != nil {
		return err
	}
	manifests, err := loaded.Manifests()
	if err != nil {
		return err
	}
	return writeAll(target, manifests)
}

func writeAll(target string, manifests []chart.Manifest) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	for _, m := range manifests {
		if err := os.WriteFile(filepath.Join(target, m.Name), []byte(m.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
