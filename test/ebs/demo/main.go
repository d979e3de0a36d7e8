//go:build linux

// Command demo shows the whole life of an EBS volume on one machine: an EC2 emulator with
// real block devices, the controller and two nodes, each in a separate process, and the CSI
// calls of Kubernetes. `make run-ebs`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/holdfast-csi/holdfast/test/ebs/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	holdfast := flag.String("holdfast", "bin/holdfast", "the driver's binary")
	emulator := flag.String("emulator", "bin/ec2emu", "the emulator's binary")
	flag.Parse()
	if os.Geteuid() != 0 {
		return errors.New("loop devices and mounts need root: run make run-ebs")
	}
	root, err := os.MkdirTemp("/var/tmp", "holdfast-ebs-")
	if err != nil {
		return err
	}
	l, err := lab.Open(ctx, lab.Options{
		Holdfast: *holdfast, Emulator: *emulator, Root: root, Devices: true,
		EmulatorFlags: []string{"--times=bench"},
	})
	if err != nil {
		return errors.Join(err, os.RemoveAll(root))
	}
	defer func() {
		// A directory with mounts must not be removed; its path is printed.
		if closed := l.Close(); closed != nil || err != nil {
			err = errors.Join(err, closed, fmt.Errorf("logs are in %s", root))
			return
		}
		err = os.RemoveAll(root)
	}()
	fmt.Printf("EC2 answers on %s; everything else is below %s\n", l.Endpoint(), root)
	s, err := newStory(ctx, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.unmountAll(context.WithoutCancel(ctx))) }()
	return s.run(ctx)
}

// file is where the demonstration writes on a volume that is mounted.
func file(target string) string { return filepath.Join(target, "greeting") }
