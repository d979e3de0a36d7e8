package cluster

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mount is mount(2) with an error that names the source and the target.
func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("cluster: mount %s %s on %s: %w", kind, source, target, err)
	}
	return nil
}

// bind makes a recursive bind mount of a directory.
func bind(source, target string) error {
	return mount(source, target, "bind", unix.MS_BIND|unix.MS_REC, "")
}

// propagate sets how mounts below / travel between mount namespaces.
func propagate(how uintptr) error { return mount("", "/", "", how|unix.MS_REC, "") }
