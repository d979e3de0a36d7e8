package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/csi/server"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	"github.com/holdfast-csi/holdfast/test/binary"
)

const mebibyte = 1 << 20

// sanitySecret is sent with every call that takes secrets; no log may have it.
const sanitySecret = "open-sesame-4711"

// ids are of the form that the driver gives.
type ids struct{ sanity.DefaultIDGenerator }

func (ids) GenerateUniqueValidVolumeID() string {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		panic(err)
	}
	return "vol-" + hex.EncodeToString(random[:])
}

// notAnnounced are the specs that csi-sanity skips because the local backend does not
// announce a capability (attachment), and one that csi-test
// 5.6.0 itself has pending. Any other skip is a failure.
func notAnnounced() []string {
	const controller = "Controller Service [Controller Server] "
	return []string{
		controller + "ControllerPublishVolume should fail when no node id is provided",
		controller + "ControllerPublishVolume should fail when no volume capability is provided",
		controller + "ControllerPublishVolume should fail when no volume id is provided",
		controller + "ControllerPublishVolume should fail when publishing more volumes than the node max attach limit",
		controller + "ControllerPublishVolume should fail when the node does not exist",
		controller + "ControllerPublishVolume should fail when the volume does not exist",
		controller + "ControllerPublishVolume should fail when the volume is already published but is incompatible",
		controller + "ControllerUnpublishVolume should fail when no volume id is provided",
		controller + "ListVolumes pagination should detect volumes added between pages and accept tokens when the last volume from a page is deleted",
		controller + "volume lifecycle should be idempotent",
		controller + "volume lifecycle should work",
	}
}

// door is one way to run a driver for csi-sanity.
type door struct {
	name string
	// open starts it below root. The controller half may have its own socket.
	open func(t *testing.T, root string) (address, controllerAddress string)
}

func doors(binary string) []door {
	return []door{
		{"in process", func(t *testing.T, root string) (string, string) {
			return serveHere(t, sanityDriver(root, server.All)), ""
		}},
		{"built binary", func(t *testing.T, root string) (string, string) {
			return serveBinary(t, binary, sanityDriver(root, server.All)), ""
		}},
		{"two processes on one pool", func(t *testing.T, root string) (string, string) {
			controller := serveBinary(t, binary, sanityDriver(root, server.Controller))
			return serveBinary(t, binary, sanityDriver(root, server.Node)), controller
		}},
	}
}

// TestSanity runs csi-sanity against the driver in this process, against the
// built binary, and against one process for each half, each with filesystem and
// with block volumes; the one with mutable parameters, the other without. It is one test because ginkgo runs one suite per process.
func TestSanity(t *testing.T) {
	needRoot(t)
	var expected, skipped []string
	for _, door := range doors(build(t)) {
		for _, access := range []string{"mount", "block"} {
			root := t.TempDir()
			config := sanityConfig(t, root, access)
			config.Address, config.ControllerAddress = door.open(t, root)
			t.Cleanup(func() { leavesNothing(t, root); keepsSecrets(t, root) })
			title := door.name + ", " + access
			ginkgo.Describe(title, func() { sanity.GinkgoTest(&config) })
			for _, spec := range notAnnounced() {
				expected = append(expected, title+" "+spec)
			}
		}
	}
	ginkgo.ReportAfterSuite("skipped specs", func(report ginkgo.Report) {
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

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("loop devices and mounts need root: run make test")
	}
}

func sanityDriver(root string, mode server.Mode) driverConfig {
	return driverConfig{
		mode: mode, endpoint: "unix://" + filepath.Join(root, string(mode)+".sock"),
		backend: backendLocal, version: "v0.0.0-test", nodeID: "sanity",
		local: localConfig{pool: filepath.Join(root, "pool")}, kubeletDir: filepath.Join(root, "kubelet"),
	}
}

func sanityConfig(t *testing.T, root, access string) sanity.TestConfig {
	t.Helper()
	config := sanity.NewTestConfig()
	mkdir(t, filepath.Join(root, "kubelet"))
	config.TargetPath, config.StagingPath = filepath.Join(root, "kubelet", "target"), filepath.Join(root, "kubelet", "staging")
	config.TestVolumeSize, config.TestVolumeExpandSize = 64*mebibyte, 96*mebibyte
	config.TestVolumeAccessType = access
	config.TestVolumeParameters = map[string]string{"provisioning": "thin"}
	if access == "mount" { // csi-sanity's default is none
		config.TestVolumeMutableParameters = map[string]string{"provisioning": "thick"}
	}
	config.IDGen = ids{}
	config.DialOptions = append(config.DialOptions, grpc.WithUnaryInterceptor(sized))
	config.ControllerDialOptions = append(config.ControllerDialOptions, grpc.WithUnaryInterceptor(sized))
	config.SecretsFile = filepath.Join(root, "secrets.yaml")
	var secrets strings.Builder
	for _, call := range []string{
		"CreateVolume", "DeleteVolume", "ControllerValidateVolumeCapabilities", "NodeStageVolume", "NodePublishVolume",
		"CreateSnapshot", "DeleteSnapshot", "ControllerExpandVolume", "ControllerModifyVolume", "ListSnapshots", "GetSnapshot",
	} {
		_, _ = fmt.Fprintf(&secrets, "%sSecret:\n  password: %s\n", call, sanitySecret)
	}
	if err := os.WriteFile(config.SecretsFile, []byte(secrets.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// sized has an answer remember its size, as messages do that were sent: csi-test 5.6.0
// compares the topology of a snapshot with one that it has sent, by reflect.DeepEqual.
func sized(
	ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	err := call(ctx, method, request, answer, connection, options...)
	if message, ok := answer.(proto.Message); ok {
		proto.Size(message)
	}
	return err
}

// logFile makes the log of a driver next to its pool.
func logFile(t *testing.T, c driverConfig) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(filepath.Dir(c.local.pool), string(c.mode)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// serveHere runs a driver in this process and returns its address.
func serveHere(t *testing.T, c driverConfig) (address string) {
	t.Helper()
	c.logger = slog.New(slog.NewJSONHandler(logFile(t, c), &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, cancel := context.WithCancel(context.Background())
	process, err := newDriver(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- process.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the driver ended with %v", err)
		}
	})
	<-process.server.Ready()
	return c.endpoint
}

// build makes the command as a user would.
func build(t *testing.T) (path string) {
	t.Helper()
	path, err := binary.Build(t.Context(), t.TempDir(), "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// serveBinary runs a driver with the built command and returns its address.
func serveBinary(t *testing.T, binary string, c driverConfig) (address string) {
	t.Helper()
	log := logFile(t, c)
	command := exec.Command(binary, "driver", string(c.mode), "--backend="+c.backend, "--endpoint="+c.endpoint,
		"--pool="+c.local.pool, "--node-id="+c.nodeID, "--kubelet-dir="+c.kubeletDir, "--log-level=debug")
	command.Stderr = log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil {
			t.Errorf("after SIGTERM the binary ends with %v", err)
		}
	})
	socket := strings.TrimPrefix(c.endpoint, "unix://")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(socket); err == nil {
			return c.endpoint
		}
		if time.Now().After(deadline) {
			content, _ := os.ReadFile(log.Name())
			t.Fatalf("the binary does not serve; its log: %s", content)
		}
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o750); err != nil {
		t.Fatal(err)
	}
}

// leavesNothing checks that no volume, mount or loop device is left of a run.
func leavesNothing(t *testing.T, root string) {
	t.Helper()
	for _, kind := range []string{"volumes", "snapshots", "groups", "trash"} {
		entries, err := os.ReadDir(filepath.Join(root, "pool", kind))
		if err != nil || len(entries) > 0 {
			t.Errorf("%s has %v left (%v)", kind, entries, err)
		}
	}
	nodetest.NoLeaks(t, root)
}

func keepsSecrets(t *testing.T, root string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(root, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("there are the logs %v (%v)", logs, err)
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), sanitySecret) {
			t.Errorf("%s has a secret", log)
		}
		if !strings.Contains(string(content), "(redacted)") {
			t.Errorf("%s shows no request with secrets; is it at the debug level?", log)
		}
	}
}
