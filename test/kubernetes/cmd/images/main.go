// Command images builds the programs of the test images and writes the images
// as one archive. It runs in the directory of its module.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/holdfast-csi/holdfast/test/kubernetes/images"
)

func main() {
	output := flag.String("o", "images.tar", "archive to write")
	busybox := flag.String("busybox", "/bin/busybox", "a static busybox")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *output, *busybox)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, output, busybox string) (err error) {
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	programs := images.Programs{Busybox: busybox, Pause: filepath.Join(dir, "pause"), Agnhost: filepath.Join(dir, "agnhost")}
	if err := build(ctx, "./cmd/pause", programs.Pause); err != nil {
		return err
	}
	if err := build(ctx, "k8s.io/kubernetes/test/images/agnhost", programs.Agnhost); err != nil {
		return err
	}
	if programs.GNU, err = gnu(ctx); err != nil {
		return err
	}
	all, err := images.Test(ctx, programs)
	if err != nil {
		return err
	}
	return write(output, all)
}

// gnu are a shell and a dd of this machine, with their libraries under the paths
// where they look for them.
func gnu(ctx context.Context) (map[string]string, error) {
	files := map[string]string{"/bin/sh": "/bin/dash", "/bin/dd": "/bin/dd"}
	output, err := exec.CommandContext(ctx, "ldd", "/bin/dash", "/bin/dd").Output()
	if err != nil {
		return nil, fmt.Errorf("ask ldd for the libraries of dd: %w", err)
	}
	for field := range strings.FieldsSeq(string(output)) {
		if !strings.HasPrefix(field, "/") || strings.HasSuffix(field, ":") {
			continue // a name, an address, or the program itself
		}
		files[field] = field
	}
	return files, nil
}

func build(ctx context.Context, pkg, output string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", output, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// write replaces the archive when it is complete.
func write(output string, all []images.Image) error {
	file, err := os.Create(output + ".new")
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(file)
	err = errors.Join(images.Write(buffered, all), buffered.Flush(), file.Close())
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), output)
}
