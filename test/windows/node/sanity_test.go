//go:build wine && linux

package node

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

const (
	gibibyte   = 1 << 30
	kubeletDir = `C:\var\lib\kubelet`
)

// ids are of the form that EC2 gives.
type ids struct{ sanity.DefaultIDGenerator }

func (ids) GenerateUniqueValidVolumeID() string { return "vol-" + digits() }
func (ids) GenerateUniqueValidNodeID() string   { return "i-" + digits() }

func digits() string {
	var random [9]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand.Read)
	return hex.EncodeToString(random[:])[:17]
}

// pending are the specs that csi-sanity skips because of what the driver does not
// announce, or that csi-test 5.6.0 itself has pending: the same as on Linux. Any
// other skip is a failure.
func pending() []string {
	const (
		controller = "Controller Service [Controller Server] "
		groups     = "GroupController Service [GroupController "
	)
	return []string{
		controller + "ControllerPublishVolume should fail when the volume is already published but is incompatible",
		controller + "GetCapacity should return capacity (no optional values added)",
		controller + "ListVolumes pagination should detect volumes added between pages and accept tokens when the last volume from a page is deleted",
		groups + "Server] GroupControllerGetCapabilities should return appropriate capabilities",
		groups + "VolumeGroupSnapshots] CreateVolumeGroupSnapshot should fail when no name is provided",
		groups + "VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should fail when no volume id is provided",
		groups + "VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should succeed when an invalid volume id is used",
		groups + "VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when an invalid volume id is used",
		groups + "VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when no volume id is provided",
		"CreateSnapshot [Controller Server] should succeed when creating a snapshot with accessibility requirements",
	}
}

// The suite csi-sanity on Linux against the node half on Windows.
func TestSanity(t *testing.T) {
	w := open(t)
	config := w.config()
	var expected, skipped []string
	const title = "Windows node"
	ginkgo.Describe(title, func() { sanity.GinkgoTest(&config) })
	for _, spec := range pending() {
		expected = append(expected, title+" "+spec)
	}
	ginkgo.ReportAfterSuite("what was skipped", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports.WithState(types.SpecStateSkipped | types.SpecStatePending) {
			skipped = append(skipped, spec.FullText())
		}
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "csi-sanity")
	slices.Sort(expected)
	slices.Sort(skipped)
	if difference := cmp.Diff(expected, skipped); difference != "" {
		t.Errorf("the specs skipped differ (-want +got):\n%s", difference)
	}
	w.leavesNothing(t)
}

func (w *world) config() sanity.TestConfig {
	config := sanity.NewTestConfig()
	config.Address, config.ControllerAddress = w.address, w.controllerSocket
	config.TargetPath, config.StagingPath = kubeletDir+`\pods\1\volumes`, kubeletDir+`\plugins\globalmount`
	// The paths are the machine's, where the kubelet makes the first and the driver
	// the second.
	config.CreateTargetDir = func(path string) (string, error) {
		return path, w.machine.call(http.MethodPost, "/files", map[string]any{"path": path, "kind": "directory"}, nil)
	}
	config.CreateStagingDir = config.CreateTargetDir
	config.RemoveTargetPath = w.remove
	config.RemoveStagingPath = w.remove
	config.CheckPath = w.kindOf
	config.TestVolumeSize, config.TestVolumeExpandSize = gibibyte, 2*gibibyte
	config.TestVolumeAccessType = "mount"
	config.TestVolumeParameters = map[string]string{"type": "gp3"}
	config.TestVolumeMutableParameters = map[string]string{"throughput": "150"}
	config.TestNodeVolumeAttachLimit = true
	config.IDGen = ids{}
	return config
}

// windowsPath is a path of csi-sanity, which joins with slashes.
func windowsPath(path string) string { return strings.ReplaceAll(path, "/", `\`) }

// file is what the simulated machine reports of a path.
type file struct {
	Attributes, ReparseTag uint32
}

func (w *world) kindOf(path string) (sanity.PathKind, error) {
	var f file
	err := w.machine.call(http.MethodGet, "/files?path="+url.QueryEscape(windowsPath(path)), nil, &f)
	const directory, reparse = 0x10, 0x400
	switch {
	case err != nil && strings.Contains(err.Error(), "404"):
		return sanity.PathIsNotFound, nil
	case err != nil:
		return "", err
	case f.Attributes&reparse != 0:
		return sanity.PathIsOther, nil
	case f.Attributes&directory != 0:
		return sanity.PathIsDir, nil
	}
	return sanity.PathIsFile, nil
}

// remove takes a directory away, if it is there.
func (w *world) remove(path string) error {
	if kind, err := w.kindOf(path); err != nil || kind == sanity.PathIsNotFound {
		return err
	}
	return w.machine.call(http.MethodDelete, "/files?path="+url.QueryEscape(windowsPath(path)), nil, nil)
}

// leavesNothing checks the machine after a run: it is whole, nothing was
// destroyed, and no disk or folder of a volume is left.
func (w *world) leavesNothing(t *testing.T) {
	t.Helper()
	if err := w.machine.call(http.MethodGet, "/check", nil, nil); err != nil {
		t.Error(err)
	}
	s, err := w.machine.state()
	must(t, err)
	if len(s.Losses) > 0 {
		t.Errorf("destroyed: %v", s.Losses)
	}
	for _, disk := range s.Disks {
		if !disk.IsSystem {
			t.Errorf("disk %s is left", disk.Serial)
		}
	}
}
