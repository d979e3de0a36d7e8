package mount

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// FuzzResolve resolves any path below a kubelet's directory that has symbolic links, and
// any path as it is. What is resolved lies where its text says, and in no forbidden
// directory.
func FuzzResolve(f *testing.F) {
	top, err := filepath.EvalSymlinks(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	kubelet, pool := filepath.Join(top, "kubelet"), filepath.Join(top, "pool")
	for _, directory := range []string{filepath.Join(kubelet, "pods", "u"), pool} {
		if err := os.MkdirAll(directory, 0o700); err != nil {
			f.Fatal(err)
		}
	}
	for link, target := range map[string]string{"out": pool, "up": "..", "self": ".", "pods/loop": "loop", "pods/abs": "/"} {
		if err := os.Symlink(target, filepath.Join(kubelet, link)); err != nil {
			f.Fatal(err)
		}
	}
	for _, path := range []string{"/pods/u/x", "/out/x", "/up/pool/x", "/self/pods/x", "/pods/loop/x", "/pods/../x", "//x", "/pods/abs/etc/x", "", "/", "/pods/u/", "/\x00", "/pods/u/…"} {
		f.Add(path, true)
		f.Add(path, false)
	}
	f.Add("/proc/self/root/x", false)
	f.Add("/proc/self/fd/0/x", false)
	r, err := NewResolver(kubelet, []string{pool})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string, below bool) {
		if below {
			path = kubelet + path
		}
		fuzztest.Cost{}.Within(t, len(path), func() {
			point, err := r.Resolve("path", path)
			if err != nil {
				return
			}
			defer func() { _ = point.Close() }()
			if point.Real() != path || within(pool, point.Real()) || within(point.Real(), pool) {
				t.Errorf("%q is at %q", path, point.Real())
			}
			if below && !strings.HasPrefix(point.Real(), kubelet) {
				t.Errorf("%q leads to %q", path, point.Real())
			}
			if node, err := point.Open(); err == nil {
				_ = node.Close()
			}
		})
	})
}
