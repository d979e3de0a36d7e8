// Package ebs tests the driver with the ebs backend as it is deployed: built
// programs, an EC2 emulator over TCP, real loop devices on the nodes' side.
package ebs

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	"github.com/holdfast-csi/holdfast/test/binary"
	"github.com/holdfast-csi/holdfast/test/ebs/lab"
)

const gibibyte = 1 << 30

// ids are of the form that EC2 gives.
type ids struct{ sanity.DefaultIDGenerator }

func (ids) GenerateUniqueValidVolumeID() string { return "vol-" + digits() }
func (ids) GenerateUniqueValidNodeID() string   { return "i-" + digits() }

func digits() string {
	var random [9]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand.Read)
	return hex.EncodeToString(random[:])[:17]
}

// pending are the specs that csi-sanity skips because of what the driver does
// not announce, or that csi-test 5.6.0 itself has pending. Any other skip is a
// failure.
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

// build makes the programs as a user would.
func build(t *testing.T) (holdfast, emulator string) {
	t.Helper()
	directory := t.TempDir()
	var paths []string
	for _, name := range []string{"holdfast", "ec2emu"} {
		path, err := binary.Build(t.Context(), directory, name)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths[0], paths[1]
}

// open starts an emulator that answers at once.
func open(t *testing.T, holdfast, emulator string) *lab.Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("loop devices and mounts need root: run make test")
	}
	l, err := lab.Open(t.Context(), lab.Options{
		Holdfast: holdfast, Emulator: emulator, Root: t.TempDir(), Devices: true,
		EmulatorFlags: []string{"--times=instant", "--latency=0s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestSanity runs csi-sanity over one process with both halves and block volumes,
// and over one process for each half with filesystems; the first without mutable
// parameters. It is one test because
// ginkgo runs one suite per process.
func TestSanity(t *testing.T) {
	t.Parallel()
	holdfast, emulator := build(t)
	var expected, skipped []string
	for halves, access := range map[string]string{"one process": "block", "two processes": "mount"} {
		l := open(t, holdfast, emulator)
		config := configOf(t, l, halves, access)
		title := halves + ", " + access
		ginkgo.Describe(title, func() { sanity.GinkgoTest(&config) })
		for _, spec := range pending() {
			expected = append(expected, title+" "+spec)
		}
		defer leavesNothing(t, l)
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
}

func configOf(t *testing.T, l *lab.Lab, halves, access string) sanity.TestConfig {
	t.Helper()
	config := sanity.NewTestConfig()
	instance := lab.Pair()[0]
	var node *lab.Process
	var err error
	if halves == "one process" {
		node, err = l.All(t.Context(), instance)
	} else {
		node, err = l.Node(t.Context(), instance)
		controller, failed := l.Controller(t.Context(), "controller")
		if failed != nil {
			t.Fatal(failed)
		}
		config.ControllerAddress = controller.Socket
	}
	if err != nil {
		t.Fatal(err)
	}
	config.Address = node.Socket
	config.TargetPath, config.StagingPath = filepath.Join(node.KubeletDir, "target"), filepath.Join(node.KubeletDir, "staging")
	config.TestVolumeSize, config.TestVolumeExpandSize = gibibyte, 2*gibibyte
	config.TestVolumeAccessType = access
	config.TestVolumeParameters = map[string]string{"type": "gp3"}
	if access == "mount" { // csi-sanity's default is none
		config.TestVolumeMutableParameters = map[string]string{"throughput": "150"}
	}
	config.TestNodeVolumeAttachLimit = true
	config.IDGen = ids{}
	return config
}

// leavesNothing checks that the emulated account and this machine are as before.
func leavesNothing(t *testing.T, l *lab.Lab) {
	t.Helper()
	response, err := http.Get(l.Endpoint() + "/?Action=DescribeVolumes&Version=2016-11-15&Filter.1.Name=tag-key&Filter.1.Value.1=CSIVolumeName")
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	text := new(strings.Builder)
	if err := response.Write(text); err != nil || strings.Contains(text.String(), "<volumeId>") {
		t.Errorf("volumes are left: %v %s", err, text)
	}
	// The loop devices are the emulator's, which still runs.
	if left := nodetest.MountsBelow(t, l.Root()); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}
