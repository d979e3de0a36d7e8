package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

func TestMain(m *testing.M) {
	peertest.Main()
	if socket := os.Getenv("HOLDFAST_TEST_SOCKET"); socket != "" {
		os.Exit(asAnotherUser(socket))
	}
	goleak.VerifyTestMain(m)
}

// fixture is a server with a real store and a fake host that records the calls.
type fixture struct {
	*Client
	root    string
	store   *store.Store
	journal *journal.Journal
	host    *fakeHost
	stop    func()
}

func serve(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{root: t.TempDir(), host: &fakeHost{released: make(chan string, 10)}}
	if err := os.Chmod(f.root, 0o755); err != nil { // so that another user can reach the socket
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	var err error
	if f.store, err = store.Open(f.root); err != nil {
		t.Fatal(err)
	}
	if f.journal, err = journal.Open(f.root, logger); err != nil {
		t.Fatal(err)
	}
	f.host.store = f.store
	options := Options{Store: f.store, Journal: f.journal, Host: f.host, Logger: logger, Version: "v1.2.3"}
	for _, one := range change {
		one(&options)
	}
	listener, err := Listen(t.Context(), f.socket(), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- NewServer(options).Serve(ctx, listener) }()
	f.Client = DialRoot(f.root)
	f.stop = sync.OnceFunc(func() {
		f.Close()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the server does not end")
		}
		if err := errors.Join(f.journal.Close(), f.store.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *fixture) socket() string { return filepath.Join(f.root, SocketName) }

func (f *fixture) put(t testing.TB, objects ...store.Object) {
	t.Helper()
	err := f.store.Update(func(tx *store.Tx) error {
		for _, object := range objects {
			if err := tx.Objects(kindOf(t, object)).Put(store.KeyOf(object), object.DeepCopyObject().(store.Object)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func kindOf(t testing.TB, object store.Object) store.Kind {
	t.Helper()
	for _, kind := range store.Kinds() {
		if fmt.Sprintf("%T", kind.New()) == fmt.Sprintf("%T", object) {
			return kind
		}
	}
	t.Fatalf("%T is not a kind", object)
	return store.Kind{}
}

func kindNamed(resource string) store.Kind {
	for _, kind := range Kinds() {
		if kind.Resource == resource {
			return kind
		}
	}
	panic(resource)
}

func claimNamed(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, UID: "uid-1"}}
}

func classNamed(name string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "x.example"}
}

// fakeHost calls the functions that a test sets; without them it returns zero values.
type fakeHost struct {
	store    *store.Store
	mu       sync.Mutex
	applied  []manifest.File
	options  ApplyOptions
	deleted  []DeleteOptions
	err      error
	held     []HoldRequest
	released chan string
	logs     func(context.Context, LogRequest, io.Writer) error
	exec     func(context.Context, ExecRequest, ExecStreams) (int, error)
	copy     func(context.Context, CopyRequest, ExecStreams) error
}

func (h *fakeHost) Copy(ctx context.Context, request CopyRequest, streams ExecStreams) error {
	return h.copy(ctx, request, streams)
}

func (h *fakeHost) Exec(ctx context.Context, request ExecRequest, streams ExecStreams) (int, error) {
	return h.exec(ctx, request, streams)
}

func (h *fakeHost) Apply(_ context.Context, files []manifest.File, options ApplyOptions) (ApplyResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.applied, h.options = files, options
	return ApplyResult{Applied: []Applied{{Kind: "StorageClass", Key: "fast", Action: Created}}, Warnings: []string{"mind the gap"}}, h.err
}

func (h *fakeHost) DeleteObject(_ context.Context, kind store.Kind, key string, options DeleteOptions) (Deleted, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleted = append(h.deleted, options)
	if h.err != nil {
		return Deleted{}, h.err
	}
	if kind.Kind == "PersistentVolumeClaim" {
		return Deleted{Kind: kind.Kind, Key: key, Waits: []string{"Pod \"default/web\" uses it"}}, nil
	}
	return Deleted{Kind: kind.Kind, Key: key, Gone: true}, nil
}

func (h *fakeHost) Hold(_ context.Context, request HoldRequest) (HoldAnswer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = append(h.held, request)
	return HoldAnswer{Pod: "default/hold", Volumes: map[string]HoldMount{"data": {Path: "/p"}}}, h.err
}

func (h *fakeHost) Release(_ context.Context, request ReleaseRequest) error {
	h.released <- request.Namespace + "/" + request.Name
	return h.err
}

func (h *fakeHost) Logs(ctx context.Context, request LogRequest, out io.Writer) error {
	if h.logs != nil {
		return h.logs(ctx, request, out)
	}
	_, err := fmt.Fprintf(out, "%+v\n", request)
	return err
}

func (h *fakeHost) Drain(context.Context) error { return h.err }

func (h *fakeHost) Mounts(context.Context, string) ([]Mount, error) {
	return []Mount{{Volume: "data", Driver: "d.example", Path: "/x", Error: "it is gone"}}, h.err
}

func (h *fakeHost) Stats(context.Context, string) (VolumeStats, error) {
	return VolumeStats{Bytes: &Usage{Total: 10, Used: 4, Available: 6}}, h.err
}

func (h *fakeHost) Progress() []journal.StepEntry {
	return []journal.StepEntry{{Volume: "claim ns/data", Step: "create", Progress: &progress.State{Doing: "copying", Done: 1, Total: 2}}}
}

func (h *fakeHost) Activity() (Activity, error) {
	available := int64(5)
	return Activity{
		Volumes: []VolumeActivity{{Volume: "pvc-1", Claim: "ns/data", Device: "loop1", Counters: &Counters{Reads: 7}}},
		Drivers: []DriverActivity{{Name: "d.example", Available: &available}},
	}, h.err
}

func (h *fakeHost) Drivers() []Driver { return []Driver{{Name: "x.example"}} }

func (h *fakeHost) State(kind store.Kind, key string) []WorkState {
	return []WorkState{{Controller: kind.Resource + " " + key, Attempts: 3, LastError: "no"}}
}
