//go:build linux

// Command bench measures the controller of the ebs backend with an EC2 emulator on
// loopback: how long CSI calls take, and how many EC2 calls they need. With -reference it
// measures the binary of another driver in the same run. `make bench-ebs`; the tables are
// in docs/reference/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-csi/holdfast/test/ebs/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the values of the command line.
type settings struct {
	holdfast, emulator, reference string
	workers                       int
	deadline                      time.Duration
}

func run(ctx context.Context) error {
	var s settings
	var counts string
	flag.StringVar(&s.holdfast, "holdfast", "bin/holdfast", "the binary to measure")
	flag.StringVar(&s.emulator, "emulator", "bin/ec2emu", "the emulator's binary")
	flag.StringVar(&s.reference, "reference", "", "binary of the AWS EBS CSI driver, to measure in the same run")
	flag.StringVar(&counts, "volumes", "500,5000", "how many volumes, one table for each")
	flag.IntVar(&s.workers, "workers", 100, "CSI calls at once")
	flag.DurationVar(&s.deadline, "deadline", time.Minute, "of one CSI call")
	flag.Parse()
	for _, text := range strings.Split(counts, ",") {
		volumes, err := strconv.Atoi(text)
		if err != nil || volumes < 1 {
			return fmt.Errorf("-volumes: %q is not a number of volumes", text)
		}
		for _, d := range s.drivers() {
			results, err := measure(ctx, s, d, volumes)
			if err != nil {
				return fmt.Errorf("%s with %d volumes: %w", d.name, volumes, err)
			}
			fmt.Print(render(d.name, volumes, results))
		}
	}
	return nil
}

// subject is a measured driver.
type subject struct {
	name  string
	start func(ctx context.Context, l *lab.Lab) (*lab.Process, error)
}

func (s settings) drivers() []subject {
	subjects := []subject{{"Holdfast",
		func(ctx context.Context, l *lab.Lab) (*lab.Process, error) { return l.Controller(ctx, "holdfast") }}}
	if s.reference != "" {
		subjects = append(subjects,
			subject{"AWS EBS CSI driver", func(ctx context.Context, l *lab.Lab) (*lab.Process, error) {
				return l.Reference(ctx, s.reference)
			}})
	}
	return subjects
}

// slowStart makes the first transition of each kind take 20 s: the measurements must not
// depend on the first ones.
const slowStart = `--volume-fault={"kind":"slow","takes":"20s","count":4}`

// perInstance is how many volumes are attached to each instance.
const perInstance = 20

func measure(ctx context.Context, s settings, d subject, volumes int) (r results, err error) {
	root, err := os.MkdirTemp("", "holdfast-bench-ebs-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	var instances []lab.Instance
	for i := range (volumes + perInstance - 1) / perInstance {
		instances = append(instances,
			lab.Instance{ID: fmt.Sprintf("i-%017x", i+1), Type: "m5.large", Zone: "us-west-2a"})
	}
	l, err := lab.Open(ctx, lab.Options{
		Holdfast: s.holdfast, Emulator: s.emulator, Root: root, Instances: instances,
		EmulatorFlags: []string{"--times=bench", "--latency=50ms", "--journal=1", slowStart},
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	driver, err := d.start(ctx, l)
	if err != nil {
		return r, err
	}
	b := &bench{settings: s, lab: l, driver: driver, volumes: make([]volume, volumes)}
	for i := range b.volumes {
		b.volumes[i] = volume{name: fmt.Sprintf("pvc-%d", i), node: instances[i/perInstance].ID}
	}
	return b.run(ctx)
}
