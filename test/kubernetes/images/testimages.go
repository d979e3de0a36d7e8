package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"slices"
	"strings"

	image "k8s.io/kubernetes/test/utils/image"
)

// exampleImage is the full name of the image "busybox" in the manifests of examples/.
const exampleImage = "docker.io/library/busybox:latest"

// Programs are files that the images are made of.
type Programs struct {
	Busybox string // a static one
	Pause   string // cmd/pause
	Agnhost string // k/k's test/images/agnhost
	// GNU are the machine's own files for the image with glibc, by the name that
	// each has there: a shell, a dd, and the libraries that they need.
	GNU map[string]string
}

// Test makes the images that the pods of the end-to-end tests and of the
// official suite run. Where upstream builds on Alpine, these have busybox alone.
func Test(ctx context.Context, p Programs) ([]Image, error) {
	pause, err := single("/pause", p.Pause)
	if err != nil {
		return nil, err
	}
	shell, err := shellLayer(ctx, p.Busybox)
	if err != nil {
		return nil, err
	}
	agnhost, err := single("/agnhost", p.Agnhost)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		agnhost.Link("/agnhost-2", "agnhost"), // a second name that the entry point tests use
		agnhost.File("/etc/passwd", 0o644, []byte(passwd+agnhostPasswd)),
		agnhost.File("/etc/group", 0o644, []byte(group+agnhostGroup)),
	)
	if err != nil {
		return nil, err
	}
	gnu, err := gnuLayer(p.GNU)
	if err != nil {
		return nil, err
	}
	return []Image{
		{Names: []string{image.GetE2EImage(image.Pause)}, Layers: []*Layer{pause}, Entrypoint: []string{"/pause"}},
		{
			// nginx runs a shell script only. The last name is that of examples/.
			Names:  []string{image.GetE2EImage(image.BusyBox), image.GetE2EImage(image.Nginx), exampleImage},
			Layers: []*Layer{shell}, Cmd: []string{"sh"},
		},
		{
			// Specs of volumes write from it without the page cache.
			Names:  []string{image.GetE2EImage(image.GlibcDnsTesting)},
			Layers: []*Layer{shell, gnu}, Cmd: []string{"sh"},
		},
		{
			Names:  []string{image.GetE2EImage(image.Agnhost)},
			Layers: []*Layer{shell, agnhost}, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"},
		},
	}, nil
}

// single is a layer of one program.
func single(name, from string) (*Layer, error) {
	layer := NewLayer()
	return layer, layer.Copy(name, from)
}

// gnuLayer lies over busybox, whose dd knows no oflag=nocache; and whose shell uses its
// own dd independent of PATH, so that it needs another shell, too.
func gnuLayer(files map[string]string) (*Layer, error) {
	layer := NewLayer()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := layer.Copy(name, files[name]); err != nil {
			return nil, err
		}
	}
	return layer, nil
}

// shellLayer has busybox under all its names, and the few files that programs
// expect.
func shellLayer(ctx context.Context, busybox string) (*Layer, error) {
	layer := NewLayer()
	err := errors.Join(
		layer.Dir("/root", 0o700),
		layer.Dir("/tmp", 0o777|fs.ModeSticky),
		layer.Dir("/var/tmp", 0o777|fs.ModeSticky),
		layer.File("/etc/passwd", 0o644, []byte(passwd)),
		layer.File("/etc/group", 0o644, []byte(group)),
		layer.Copy("/bin/busybox", busybox),
	)
	if err != nil {
		return nil, err
	}
	names, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("images: ask %s for its names: %w", busybox, err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if name == "busybox" {
			continue
		}
		if err := layer.Link("/bin/"+name, "busybox"); err != nil {
			return nil, err
		}
	}
	return layer, layer.Link("/usr/bin/env", "/bin/busybox")
}

// busybox must have no name for a group above 999: specs of fsGroup compare what
// ls prints with a number. agnhost's Dockerfile names the user 1000 and the group
// 50000, which specs of supplemental groups expect.
const (
	passwd        = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
	group         = "root:x:0:\nnogroup:x:65534:\n"
	agnhostPasswd = "user-defined-in-image:x:1000:1000::/home:/bin/sh\n"
	agnhostGroup  = "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
)
