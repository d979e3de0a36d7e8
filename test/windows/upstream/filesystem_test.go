//go:build windows

package upstream

import (
	"cmp"
	"os"
	"strings"
	"testing"

	v1 "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1alpha1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1beta1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1beta2"
	"github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v2alpha1"
)

// kubelet is the proxy's --kubelet-path.
var kubelet = cmp.Or(os.Getenv("HOLDFAST_KUBELET"), `C:\var\lib\kubelet`) //nolint:gochecknoglobals // given by the environment

// filesystems are the versions of the group, with the names that they have for
// what is the same.
var filesystems = []struct {
	version          string
	open             func(*testing.T) any
	link, isLink, is string
	contents         bool
}{
	{"v1alpha1", func(t *testing.T) any { return opened(t, v1alpha1.NewClient) }, "LinkPath", "IsMountPoint", "is_mount_point", false},
	{"v1beta1", func(t *testing.T) any { return opened(t, v1beta1.NewClient) }, "LinkPath", "IsMountPoint", "is_mount_point", false},
	{"v1beta2", func(t *testing.T) any { return opened(t, v1beta2.NewClient) }, "CreateSymlink", "IsSymlink", "is_symlink", false},
	{"v1", func(t *testing.T) any { return opened(t, v1.NewClient) }, "CreateSymlink", "IsSymlink", "is_symlink", false},
	{"v2alpha1", func(t *testing.T) any { return opened(t, v2alpha1.NewClient) }, "CreateSymlink", "IsSymlink", "is_symlink", true},
}

func TestFilesystem_directories(t *testing.T) {
	for _, f := range filesystems {
		t.Run(f.version, func(t *testing.T) {
			client, base := f.open(t), kubelet+`\plugins\upstream-`+f.version
			exists := func(path string) bool { return must(t, client, "PathExists", fields{"path": path})["exists"].(bool) }
			if exists(base) {
				t.Fatalf("%s is there before the test", base)
			}
			deep := base + `\a\b`
			for range 2 { // what exists is fine
				must(t, client, "Mkdir", fields{"path": deep})
			}
			if !exists(deep) {
				t.Error("the directory does not exist")
			}
			if _, err := call(t, client, "Rmdir", fields{"path": base}); err == nil {
				t.Error("a directory with something in it is removed without force")
			}
			if f.contents {
				must(t, client, "RmdirContents", fields{"path": base})
				if exists(base+`\a`) || !exists(base) {
					t.Error("not the contents, and they alone, are removed")
				}
			}
			for range 2 { // a missing path is not an error with force
				must(t, client, "Rmdir", fields{"path": base, "force": true})
			}
			if exists(base) {
				t.Error("the removed directory exists")
			}
			if _, err := call(t, client, "Rmdir", fields{"path": base}); err == nil {
				t.Error("a missing path is removed without force")
			}
		})
	}
}

func TestFilesystem_refusesPathsOutsideItsRoots(t *testing.T) {
	for _, f := range filesystems {
		t.Run(f.version, func(t *testing.T) {
			client := f.open(t)
			for _, path := range []string{`C:\windows\x`, kubelet + `-evil\x`, kubelet + `\..\x`, `\\server\share`, `\\.\C:\x`, kubelet + `\plugins\a:b`, kubelet + `\plugins\NUL`, "", "x"} {
				for _, method := range []string{"PathExists", "Mkdir", "Rmdir", f.isLink} {
					if _, err := call(t, client, method, fields{"path": path}); err == nil || !strings.Contains(err.Error(), "InvalidArgument") {
						t.Errorf("%s %q: %v", method, path, err)
					}
				}
			}
		})
	}
}

func TestFilesystem_links(t *testing.T) {
	for _, f := range filesystems {
		t.Run(f.version, func(t *testing.T) {
			client, base := f.open(t), kubelet+`\plugins\links-`+f.version
			source, link := base+`\source`, kubelet+`\pods\links-`+f.version
			must(t, client, "Mkdir", fields{"path": source})
			must(t, client, "Mkdir", fields{"path": source + `\content`})
			must(t, client, "Mkdir", fields{"path": kubelet + `\pods`})
			for range 2 { // an equal one is fine
				must(t, client, f.link, fields{"source_path": source, "target_path": link})
			}
			if !must(t, client, f.isLink, fields{"path": link})[f.is].(bool) {
				t.Error("a link is none")
			}
			if must(t, client, f.isLink, fields{"path": source})[f.is].(bool) {
				t.Error("a directory is a link")
			}
			must(t, client, "Rmdir", fields{"path": link, "force": true})
			if !must(t, client, "PathExists", fields{"path": source + `\content`})["exists"].(bool) {
				t.Error("the removal of a link removed its target")
			}
			if _, err := call(t, client, f.link, fields{"source_path": base + `\nothing`, "target_path": link}); err == nil {
				t.Error("a link to nothing is made")
			}
			must(t, client, "Rmdir", fields{"path": base, "force": true})
		})
	}
}

// Under wine a link is answered with success and not made. The proxy reads back,
// so its caller learns of it.
func TestFilesystem_linksThatAreNotMade(t *testing.T) {
	client, source := opened(t, v1.NewClient), kubelet+`\plugins\false-success`
	must(t, client, "Mkdir", fields{"path": source})
	must(t, client, "Mkdir", fields{"path": kubelet + `\pods`})
	if _, err := call(t, client, "CreateSymlink", fields{"source_path": source, "target_path": kubelet + `\pods\false-success`}); err == nil {
		t.Error("a link that is not there was made, it is said")
	}
	must(t, client, "Rmdir", fields{"path": source, "force": true})
}
