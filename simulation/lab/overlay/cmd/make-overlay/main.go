// Command make-overlay writes the overlay with which a simulation is compiled, and prints
// the path of overlay.json.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-csi/holdfast/simulation/lab/defects"
	"github.com/holdfast-csi/holdfast/simulation/lab/overlay"
)

func main() {
	directory := flag.String("o", filepath.Join(os.TempDir(), "holdfast-overlay"), "directory of the changed files")
	planted := flag.Bool("defects", false, "plant the known defects, of which the environment variable DEFECT activates one")
	flag.Parse()
	if err := run(*directory, *planted); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(directory string, planted bool) error {
	goroot, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	changes := overlay.Runtime(strings.TrimSpace(string(goroot)))
	if planted {
		changes = append(changes, defects.Changes(defects.All())...)
	}
	path, err := overlay.Write(directory, ".", changes)
	if err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
