// Command image writes the container image of holdfast as one tar file, without
// a registry or a daemon. The file is an OCI image layout that also has the
// manifest.json of docker-archive(5), so `ctr images import`, `docker load`,
// `podman load` and `skopeo copy oci-archive:…` take it as it is.
//
// The image contains the static binary, the programs that holdfast spawns with
// their shared libraries, without a shell and a package manager. The
// programs are those of a Debian root, by default of the machine it runs on;
// deploy/image/fetch makes one for another architecture. Equal input gives an
// equal image, byte for byte.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "image:", err)
		}
		os.Exit(1)
	}
}

// options name the contents of the image and the output.
type options struct {
	root     string // of the Debian system that the programs are taken from
	binary   string // holdfast, static
	output   string
	name     string // REPOSITORY:TAG
	version  string
	revision string
	arch     string // GOARCH
	created  time.Time
}

func run(arguments []string, stdout io.Writer) error {
	o, err := parse(arguments)
	if err != nil {
		return err
	}
	built, err := build(o)
	if err != nil {
		return err
	}
	if err := writeFile(o.output, built.write); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %s, image %s\n", o.output, o.name, built.config.Digest)
	return err
}

func parse(arguments []string) (options, error) {
	var o options
	var epoch string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "/", "`DIRECTORY` of the Debian system that has the programs")
	flags.StringVar(&o.binary, "binary", "bin/holdfast", "the static `FILE`")
	flags.StringVar(&o.output, "o", "bin/holdfast-image.tar", "`FILE` to write")
	flags.StringVar(&o.name, "name", "holdfast.dev/holdfast:latest", "`REPOSITORY:TAG` of the image")
	flags.StringVar(&o.version, "version", "unknown", "version for the image's labels")
	flags.StringVar(&o.revision, "revision", "", "commit for the image's labels")
	flags.StringVar(&o.arch, "arch", runtime.GOARCH, "architecture, as GOARCH has it")
	flags.StringVar(&epoch, "epoch", os.Getenv("SOURCE_DATE_EPOCH"), "time stamp of everything, in `SECONDS` since 1970 (default from $SOURCE_DATE_EPOCH, else 0)")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var seconds int64
	if epoch != "" {
		var err error
		if seconds, err = strconv.ParseInt(epoch, 10, 64); err != nil || seconds < 0 {
			return o, fmt.Errorf("-epoch %q: want seconds since 1970", epoch)
		}
	}
	o.created = time.Unix(seconds, 0).UTC()
	return o, checkName(o.name)
}

// checkName requires a name that all readers take unchanged: a registry with a dot, a
// path, and a tag. Without the registry some readers prepend their own.
func checkName(name string) error {
	repository, tag, tagged := strings.Cut(name, ":")
	registry, path, _ := strings.Cut(repository, "/")
	if !tagged || tag == "" || path == "" || !strings.Contains(registry, ".") || strings.ContainsAny(name, " @") {
		return fmt.Errorf("-name %q: want REGISTRY/PATH:TAG, with a dot in REGISTRY", name)
	}
	return nil
}

// writeFile writes a file, and renames it to its name when it is complete.
func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close(), os.Remove(file.Name()))
		}
	}()
	if err := write(file); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
