//go:build monitoring

// Package e2e has a real Prometheus scrape the running parts of Holdfast with the
// project's rules: each query of the dashboards returns data, and each alert fires
// by a fault and stops after the repair.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	built "github.com/holdfast-csi/holdfast/test/binary"
)

// patience is how long anything may take on a machine that is busy with others. Volumes are
// asked how they are in a twentieth of the time at most: each 100 s if one does not answer.
const patience = 5 * time.Minute

// programs are the paths of what the tests start.
var programs struct{ holdfast, emulator, prometheus, promtool string }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "holdfast-monitoring")
	if err == nil {
		defer func() { _ = os.RemoveAll(directory) }()
		err = find(context.Background(), directory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func find(ctx context.Context, directory string) (err error) {
	if programs.holdfast, err = built.Build(ctx, directory, "holdfast"); err != nil {
		return err
	}
	if programs.emulator, err = built.Build(ctx, directory, "ec2emu"); err != nil {
		return err
	}
	bin := os.Getenv("HOLDFAST_MONITORING_BIN")
	programs.prometheus, programs.promtool = filepath.Join(bin, "prometheus"), filepath.Join(bin, "promtool")
	if _, err := os.Stat(programs.prometheus); err != nil {
		return fmt.Errorf("HOLDFAST_MONITORING_BIN=%q: %w: run make test-monitoring", bin, err)
	}
	return nil
}
