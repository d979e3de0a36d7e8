package node

import (
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

const (
	podLabel   = "system_u:object_r:container_file_t:s0:c26,c5"
	shownLabel = "system_u:object_r:container_file_t:s0:c5,c26" // as the kernel shows it
	otherLabel = "system_u:object_r:container_file_t:s0:c1,c2"
)

func labelled(label string) backend.Capability {
	return filesystem("ext4", `context="`+label+`"`)
}

// asWithSELinux has the engine see the mounts as a kernel with SELinux shows filesystems
// that are mounted with a label; "" is none.
func (f *fixture) asWithSELinux(label string) {
	f.engine.labels = func() bool { return true }
	f.engine.mounts = func() ([]*mountinfo.Info, error) {
		table, err := mount.Table()
		for _, entry := range table {
			if label == "" {
				entry.VFSOptions += ",seclabel"
			} else {
				entry.VFSOptions += `,context="` + label + `"`
			}
		}
		return table, err
	}
}

// TestSELinux_theKernelGetsTheLabel: one without SELinux does not know the option.
func TestSELinux_theKernelGetsTheLabel(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	err := f.stage("vol-a", labelled(podLabel))
	if mount.LabelsFiles() {
		f.must(err)
		f.must(f.stage("vol-a", labelled(podLabel)))
		f.wantError(f.stage("vol-a", labelled(otherLabel)), backend.ErrExists)
		return
	}
	f.wantError(err, backend.ErrInvalid)
	if !strings.Contains(err.Error(), "context="+podLabel) {
		t.Errorf("error %q does not name the option", err)
	}
}

// TestSELinux_twoLabelsAreRefused for one staged volume, and one label is shared.
func TestSELinux_twoLabelsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, staged string
		request      backend.Capability
		fits         bool
	}{
		{"the same, in the kernel's form", shownLabel, labelled(podLabel), true},
		{"another", shownLabel, labelled(otherLabel), false},
		{"none, then one", "", labelled(podLabel), false},
		{"one, then none", shownLabel, filesystem("ext4"), false},
		{"none", "", filesystem("ext4"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.backend.add(t, "vol-a", sizes["ext4"])
			f.cleanUp("vol-a", "pod")
			f.must(f.stage("vol-a", filesystem("ext4")))
			f.asWithSELinux(c.staged)
			for step, err := range map[string]error{
				"stage": f.stage("vol-a", c.request), "publish": f.publish("vol-a", "pod", c.request, false),
			} {
				if c.fits {
					f.must(err)
					continue
				}
				f.wantError(err, backend.ErrExists)
				if !strings.Contains(err.Error(), "SELinux context") {
					t.Errorf("%s: error %q", step, err)
				}
			}
		})
	}
}
