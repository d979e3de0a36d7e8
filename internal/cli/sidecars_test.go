package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/kube/live"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// Command lines from the manifests of csi-driver-host-path v1.18.0 and of other
// drivers, one per sidecar and all of them together.
func TestSidecars_takeTheCommandLinesOfThoseTheyReplace(t *testing.T) {
	cases := map[string][]string{
		"csi-provisioner":       {"-v=5", "--csi-address=/csi/csi.sock", "--feature-gates=Topology=true", "--enable-capacity", "--capacity-ownerref-level=0", "--node-deployment=true", "--strict-topology=true", "--immediate-topology=false", "--worker-threads=5", "--extra-create-metadata", "--default-fstype=ext4", "--leader-election-namespace=kube-system"},
		"csi-attacher":          {"--v=5", "--csi-address=/csi/csi.sock", "--leader-election", "--timeout=60s", "--kube-api-qps=200"},
		"csi-resizer":           {"-v=5", "-csi-address=/csi/csi.sock", "--handle-volume-inuse-error=false", "--workers=100"},
		"csi-snapshotter":       {"--csi-address=/csi/csi.sock", "--snapshot-name-prefix=snap", "--metrics-address=:8080"},
		"health monitor":        {"--csi-address=/csi/csi.sock", "--leader-election", "--enable-node-watcher=true"},
		"node-driver-registrar": {"--kubelet-registration-path=/var/lib/kubelet/plugins/csi-hostpath/csi.sock", "--http-endpoint=:9809", "--plugin-registration-path=/registration"},
		"livenessprobe":         {"--csi-address=/csi/csi.sock", "--health-port=9898", "--probe-timeout=5s"},
	}
	for name, arguments := range cases {
		t.Run(name, func(t *testing.T) {
			root := NewRoot("test")
			arguments := append([]string{sidecarsName}, arguments...)
			command, rest, err := root.Find(asSidecars(root, arguments))
			if err != nil {
				t.Fatal(err)
			}
			if err := command.ParseFlags(rest); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSidecars_everyUpstreamFlagSetsOneThatIsThere(t *testing.T) {
	values := []string{"1", "true", "1s", ":1", "/somewhere", "text", "info", "a=b"}
	command := newSidecarsCommand("test")
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		var failed []error
		for _, value := range values {
			err := flag.Value.Set(value)
			if err == nil {
				return
			}
			failed = append(failed, err)
		}
		if err := errors.Join(failed...); flag.Hidden && flag.Name != "master" {
			t.Errorf("--%s takes no value at all: %v", flag.Name, err)
		}
	})
}

func TestSidecars_masterIsRefused(t *testing.T) {
	var said bytes.Buffer
	code := Run(t.Context(), "test", []string{sidecarsName, "-master=https://10.0.0.1"}, &said, &said)
	if code != exitUsage || !strings.Contains(said.String(), "--kubeconfig") {
		t.Errorf("it ends with %d and says %q", code, said.String())
	}
}

func TestSidecars_pageOfTheDriverIsAboutTheDriverAlone(t *testing.T) {
	f := &sidecarsFlags{address: filepath.Join(t.TempDir(), "csi.sock"), logger: slog.New(slog.DiscardHandler)}
	process, err := newSidecarsProcess(f)
	if err != nil {
		t.Fatal(err)
	}
	defer process.first.Close()
	page := process.pages().driverPage(":0")
	answer := httptest.NewRecorder()
	page.Handlers[live.PathLive].ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, live.PathLive, nil))
	if answer.Code != http.StatusInternalServerError {
		t.Errorf("it answers %d %q, want that the driver is away", answer.Code, answer.Body)
	}
}

func TestSidecars_withoutControllersRegisterAndNeedNoAPIServer(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(csidriver.New("test.holdfast.dev").Serve(listener))
	ctx, cancel := context.WithCancel(t.Context())
	var said bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- Run(ctx, "test", []string{sidecarsName, "--controllers=none", "--csi-address=" + socket, "--registration-dir=" + dir}, &said, &said)
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "test.holdfast.dev-reg.sock")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Error("the driver is not offered for registration")
			break
		}
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("it ends with %d and says %s", code, said.String())
	}
	if code := Run(t.Context(), "test", []string{sidecarsName, "--controllers=none"}, &said, &said); code != exitUsage {
		t.Errorf("without a directory to register in it ends with %d", code)
	}
}
