// Package ebs tests the driver with the ebs backend as it is deployed: built
// programs, an EC2 emulator over TCP, real loop devices on the nodes' side.
package ebs

import (
	"crypto/rand"
	"encoding/hex"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

// pending are, sorted, the specs that csi-sanity skips because of what the driver does
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
		"CreateSnapshot [Controller Server] should succeed when creating a snapshot with accessibility requirements",
		groups + "Server] GroupControllerGetCapabilities should return appropriate capabilities",
		groups + "VolumeGroupSnapshots] CreateVolumeGroupSnapshot should fail when no name is provided",
		groups + "VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should fail when no volume id is provided",
		groups + "VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should succeed when an invalid volume id is used",
		groups + "VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when an invalid volume id is used",
		groups + "VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when no volume id is provided",
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

// sanityProcesses is one of processes(); TestSanity starts itself with it.
var sanityProcesses = flag.String("sanity.processes", "", "run csi-sanity over the driver in `one` or two processes")

// processes are the ways in which csi-sanity is run: over one process with both
// halves and block volumes, and over one process for each half with filesystems.
// The first has no mutable parameters.
func processes() []string { return []string{"one", "two"} }

// TestSanity runs csi-sanity over both, side by side. Each run is a process of its
// own, because ginkgo runs one suite per process.
func TestSanity(t *testing.T) {
	t.Parallel()
	if *sanityProcesses != "" {
		runSanity(t, *sanityProcesses)
		return
	}
	holdfast, _ := build(t)
	var suites sync.WaitGroup
	for _, processes := range processes() {
		suites.Go(func() { // not as subtests: most of their time is waiting, and go test limits those by CPUs
			suite := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestSanity$", "-sanity.processes="+processes)
			suite.Env = append(os.Environ(), "HOLDFAST_TEST_BIN="+filepath.Dir(holdfast))
			suite.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			output, err := suite.CombinedOutput()
			if err != nil || !strings.Contains(string(output), "--- PASS: TestSanity") {
				t.Errorf("csi-sanity with -sanity.processes=%s: %v\n%s", processes, err, output)
			}
		})
	}
	suites.Wait()
}

// runSanity runs csi-sanity and checks which specs it skips.
func runSanity(t *testing.T, processes string) {
	t.Helper()
	holdfast, emulator := build(t)
	l := open(t, holdfast, emulator)
	defer leavesNothing(t, l)
	config := configOf(t, l, processes)
	sanity.GinkgoTest(&config)
	var skipped []string
	ginkgo.ReportAfterSuite("what was skipped", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports.WithState(types.SpecStateSkipped | types.SpecStatePending) {
			skipped = append(skipped, spec.FullText())
		}
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "csi-sanity")
	slices.Sort(skipped)
	if difference := cmp.Diff(pending(), skipped); difference != "" {
		t.Errorf("the specs skipped differ (-want +got):\n%s", difference)
	}
}

func configOf(t *testing.T, l *lab.Lab, processes string) sanity.TestConfig {
	t.Helper()
	config := sanity.NewTestConfig()
	instance := lab.Pair()[0]
	var node *lab.Process
	var err error
	if processes == "one" {
		node, err = l.All(t.Context(), instance)
		config.TestVolumeAccessType = "block"
	} else {
		node, err = l.Node(t.Context(), instance)
		controller, failed := l.Controller(t.Context(), "controller")
		if failed != nil {
			t.Fatal(failed)
		}
		config.ControllerAddress = controller.Socket
		config.TestVolumeAccessType = "mount"
		config.TestVolumeMutableParameters = map[string]string{"throughput": "150"} // csi-sanity's default is none
	}
	if err != nil {
		t.Fatal(err)
	}
	config.Address = node.Socket
	config.TargetPath, config.StagingPath = filepath.Join(node.KubeletDir, "target"), filepath.Join(node.KubeletDir, "staging")
	config.TestVolumeSize, config.TestVolumeExpandSize = gibibyte, 2*gibibyte
	config.TestVolumeParameters = map[string]string{"type": "gp3"}
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
