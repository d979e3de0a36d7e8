package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// testHost is a server over a real store; the test acts for the host.
type testHost struct {
	api.Host
	root    string
	store   *store.Store
	journal *journal.Journal
	// onApply and onDelete handle the calls.
	onApply  func([]manifest.File, api.ApplyOptions) (api.ApplyResult, error)
	onDelete func(kind store.Kind, key string) (api.Deleted, error)
	// onHold is called by Hold and Release, which then last until their callers leave.
	onHold func()
	// works means that the host works on each object.
	works atomic.Bool
	// sound means that the driver is registered, and that no work failed.
	sound atomic.Bool
}

func (h *testHost) Hold(ctx context.Context, _ api.HoldRequest) (api.HoldAnswer, error) {
	h.onHold()
	<-ctx.Done()
	return api.HoldAnswer{}, ctx.Err()
}

func (h *testHost) Drain(context.Context) error { return nil }

func (h *testHost) Release(ctx context.Context, _ api.ReleaseRequest) error {
	h.onHold()
	<-ctx.Done()
	return ctx.Err()
}

func (h *testHost) Apply(_ context.Context, files []manifest.File, options api.ApplyOptions) (api.ApplyResult, error) {
	return h.onApply(files, options)
}

func (h *testHost) DeleteObject(_ context.Context, kind store.Kind, key string, _ api.DeleteOptions) (api.Deleted, error) {
	return h.onDelete(kind, key)
}

func (h *testHost) Logs(_ context.Context, request api.LogRequest, out io.Writer) error {
	_, err := fmt.Fprintf(out, "%s/%s %s %d\n", request.Namespace, request.Pod, request.Container, request.Tail)
	if request.Timestamps {
		_, err = fmt.Fprintf(out, "since %s", request.Since.UTC().Format(time.RFC3339))
	}
	return err
}

func (h *testHost) Stats(context.Context, string) (api.VolumeStats, error) {
	return api.VolumeStats{Bytes: &api.Usage{Total: 1 << 30, Used: 3 << 20}}, nil
}

func (h *testHost) State(store.Kind, string) []api.WorkState {
	if h.sound.Load() {
		return []api.WorkState{{Controller: "claims", Running: h.works.Load()}}
	}
	return []api.WorkState{{Controller: "claims", Attempts: 2, LastError: "no space"}}
}

func (h *testHost) Drivers() []api.Driver {
	driver := api.Driver{Name: "d.example"}
	if h.sound.Load() {
		driver.Instances = []api.DriverInstance{{State: string(plugins.StateRegistered), Serving: true}}
	}
	return []api.Driver{driver}
}

func startTestHost(t *testing.T) *testHost {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Fatal("who connects is known on Linux only: run this there")
	}
	h := &testHost{root: t.TempDir()}
	var err error
	if h.store, err = store.Open(h.root); err != nil {
		t.Fatal(err)
	}
	if h.journal, err = journal.Open(h.root, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	options := api.Options{Store: h.store, Journal: h.journal, Host: h, Logger: slog.New(slog.DiscardHandler)}
	listener, err := api.Listen(t.Context(), filepath.Join(h.root, api.SocketName), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := api.NewServer(options).Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		serving.Wait()
		if err := errors.Join(h.journal.Close(), h.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *testHost) put(t *testing.T, objects ...store.Object) {
	t.Helper()
	err := h.store.Update(func(tx *store.Tx) error {
		for _, object := range objects {
			for _, kind := range store.Kinds() {
				if fmt.Sprintf("%T", kind.New()) == fmt.Sprintf("%T", object) {
					if err := tx.Objects(kind).Put(store.KeyOf(object), object); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func (h *testHost) run(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	return run(t, append(arguments, "--root="+h.root)...)
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-" + "1", CreationTimestamp: metav1.NewTime(time.Now().Add(-3 * time.Hour))}
}

func pendingClaim(name string) *corev1.PersistentVolumeClaim {
	class := "fast"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(name), Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

func pod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: meta(name), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func expect(t *testing.T, what string, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

func TestGet_showsTables(t *testing.T) {
	h := startTestHost(t)
	other := pendingClaim("elsewhere")
	other.Namespace, other.Labels = "other", map[string]string{"app": "web"}
	web := pod("web", corev1.PodRunning)
	web.Labels = map[string]string{"app": "web"}
	h.put(t, pendingClaim("data"), other, web)
	cases := []struct {
		arguments      string
		code           int
		stdout, stderr string
	}{
		{"get pvc", 0, "NAME   STATUS    VOLUME   CAPACITY   ACCESS MODES   STORAGECLASS   VOLUMEATTRIBUTESCLASS   AGE\n" +
			"data   Pending                                      fast           <unset>                 3h\n", ""},
		{"get pvc -A --no-headers --show-labels", 0, "default   data        Pending            fast   <unset>   3h   <none>\n" +
			"other     elsewhere   Pending            fast   <unset>   3h   app=web\n", ""},
		{"get pvc -n other -l app=web -o name", 0, "persistentvolumeclaim/elsewhere\n", ""},
		{"get po/web pvc/data --no-headers", 0, "pod/web   0/1   Running   0   3h\n\npersistentvolumeclaim/data   Pending            fast   <unset>   3h\n", ""},
		{"get pods web none --no-headers", 1, "web   0/1   Running   0   3h\n", "holdfast: pods \"none\" not found\n"},
		{"get sc", 0, "", "No resources found\n"},
		{"get pods -n other", 0, "", "No resources found in other namespace.\n"},
		{"get pvc data -o json", 0, `"name": "data"`, ""},
		{"get pvc -o yaml", 0, "kind: List", ""},
		{"get pvc.nothing", 2, "", `kind "pvc.nothing" does not exist`},
		{"get", 2, "", "say what"},
		{"get pods/", 2, "", "is not KIND/NAME"},
		{"get pods web/x", 2, "", "not both"},
		{"get pods,pvc -w", 2, "", "one kind at a time"},
		{"get pods web -A", 2, "", "-A does not go with names"},
		{"get pods web -l a=b", 2, "", "do not go together"},
		{"get pods -o xml", 2, "", "none of wide, yaml, json and name"},
		{"get pods -l ==", 2, "", `-l "=="`},
		{"get pvc ..", 2, "", `".." is not a name`},
		{"get pvc/.", 2, "", `"." is not a name`},
		{"get pods -n ..", 2, "", `".." is not the name of a namespace`},
		{"describe pods ..", 2, "", `".." is not a name`},
		{"delete pvc ..", 2, "", `".." is not a name`},
		{"logs ..", 2, "", "is not a pod's name"},
		{"why pvc/..", 2, "", `".." is not a name`},
		{"logs", 2, "", "say which pod"},
		{"why", 2, "", "say what: KIND/NAME"},
		{"apply -f - --wait --timeout=-1s", 2, "", "--timeout -1s"},
		{"delete pods web --timeout=-1s", 2, "", "--timeout -1s"},
		{"describe pods none", 1, "", `"none" not found`},
		{"logs pod/web -c main --tail 3", 0, "default/web main 3\n", ""},
		{"logs pod/web --timestamps --since-time 2026-01-02T03:04:05+01:00", 0, "default/web  -1\nsince 2026-01-02T02:04:05Z", ""},
		{"logs web --all-containers --tail 3", 0, "[web/main] default/web main 3\n", ""},
		{"logs -l app=web --prefix=false --timestamps", 0, "default/web main -1\nsince 0001-01-01T00:00:00Z\n", ""},
		{"logs -l app=none", 0, "", "No pods with the labels app=none in namespace default."},
		{"logs web -l app=web", 2, "", "not both"},
		{"logs web -c main --all-containers", 2, "", "not both"},
		{"logs web --since 1m --since-time 2026-01-02T03:04:05Z", 2, "", "not both"},
		{"logs web --since -1m", 2, "", "below zero"},
		{"logs web --since-time yesterday", 2, "", "is not a time"},
		{"logs -l a=b=c", 2, "", "-l"},
		{"logs a/b/c", 2, "", "is not a pod's name"},
		{"delete pods", 2, "", "say which of the pods"},
		{"delete pods web -f x", 2, "", "not both"},
		{"apply", 2, "", "-f FILE is not given"},
		{"apply -f /does/not/exist", 1, "", "read the manifest"},
		{"apply -f - --dry-run --wait", 2, "", "--wait cannot be used with --dry-run"},
	}
	for _, c := range cases {
		t.Run(c.arguments, func(t *testing.T) {
			code, stdout, stderr := h.run(t, strings.Fields(c.arguments)...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

func TestGet_anEmptyNameIsNone(t *testing.T) {
	h := startTestHost(t)
	for _, command := range []string{"get", "describe", "delete"} {
		if code, stdout, stderr := h.run(t, command, "pvc", ""); code != 2 || stdout != "" || !strings.Contains(stderr, `"" is not a name`) {
			t.Errorf("%s: exit code %d, %s%s", command, code, stdout, stderr)
		}
	}
}

func TestGet_withoutAHostSaysHowToStartOne(t *testing.T) {
	root := t.TempDir()
	code, _, stderr := run(t, "get", "pods", "--root="+root)
	if code != 1 || !strings.Contains(stderr, "start one with 'holdfast host --root "+root+"'") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// lines sends each line of a command's output to the test.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen chan string
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(data)
	for {
		line, err := l.text.ReadString('\n')
		if err != nil {
			l.text.WriteString(line)
			return len(data), nil
		}
		l.seen <- line
	}
}

func TestGet_watchShowsEachChange(t *testing.T) {
	h := startTestHost(t)
	h.put(t, pod("web", corev1.PodPending))
	ctx, cancel := context.WithCancel(t.Context())
	out := &lines{seen: make(chan string, 100)}
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, "", []string{"get", "pods", "-w", "--root=" + h.root}, out, io.Discard)
	}()
	var got string
	next := func() {
		select {
		case line := <-out.seen:
			got += line
		case <-time.After(time.Minute):
			t.Fatalf("nothing more came than\n%s", got)
		}
	}
	next()
	next()
	h.put(t, pod("web", corev1.PodRunning))
	next()
	h.put(t, pod("a-longer-name", corev1.PodPending))
	next()
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
	expect(t, "the watch", got, `NAME   READY   STATUS    RESTARTS   AGE
web    0/1     Pending   0          3h
web    0/1     Running   0          3h
a-longer-name   0/1     Pending   0          3h
`)
}

func TestDescribe_showsWhatHappenedAndHowLongItTook(t *testing.T) {
	h := startTestHost(t)
	claim := pendingClaim("data")
	h.put(t, claim)
	about := journal.Ref{Kind: "PersistentVolumeClaim", Key: "default/data", UID: string(claim.UID)}
	earlier := about
	earlier.UID = "another"
	started := time.Now().Add(-time.Hour).Truncate(time.Second) // the journal forgets after a day
	step := journal.StepEntry{About: []journal.Ref{about}, Volume: "claim default/data", Step: "create", Status: journal.Failed, Code: "ResourceExhausted", Error: "no \x1bspace", Started: started, Took: 3 * time.Millisecond}
	h.journal.Step(step)
	h.journal.Step(step)
	step.Status, step.Code, step.Error, step.Detail, step.Took, step.Started = journal.Done, "", "", "1Gi", 20*time.Millisecond, started.Add(time.Second)
	h.journal.Step(step)
	step.About = []journal.Ref{earlier}
	h.journal.Step(step)
	for range 3 {
		h.journal.Record(journal.Notice{About: about, Warning: true, Reason: "ProvisioningFailed", Message: "no\nspace"})
	}
	code, stdout, stderr := h.run(t, "describe", "pvc/data")
	if code != 0 {
		t.Fatal(stderr)
	}
	_, stdout, _ = strings.Cut(stdout, "Requested:")
	stdout = regexp.MustCompile(`\d+s \(x3 over \d+s\)`).ReplaceAllString(stdout, "0s (x3 over 0s)") // on a slow machine it is more
	expect(t, "the description", stdout, strings.NewReplacer(
		"FIRST", started.Format("2006-01-02 15:04:05.000"), "SECOND", started.Add(time.Second).Format("2006-01-02 15:04:05.000"),
	).Replace(`               0
Used:                    3.0 MiB of 1.0 GiB
Work:
  claims   failed 2 times, no space
Timeline:
  STEP     VOLUME               STARTED                   TOOK      RESULT
  create   claim default/data   FIRST   3.0 ms    failed 2 times, ResourceExhausted, no �space
  create   claim default/data   SECOND   20.0 ms   done, 1Gi
  total                                                   23.0 ms
Events:
  TYPE      REASON               AGE               MESSAGE
  Warning   ProvisioningFailed   0s (x3 over 0s)   no space
`))
}

func TestApply_waitsUntilEverythingIsReady(t *testing.T) {
	h := startTestHost(t)
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	h.put(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "x", VolumeBindingMode: &mode})
	about := []journal.Ref{{Kind: "Pod", Key: "default/web"}}
	h.journal.Step(journal.StepEntry{About: about, Volume: "old", Step: "stage", Status: journal.Done})
	h.onApply = func(files []manifest.File, options api.ApplyOptions) (api.ApplyResult, error) {
		if options.DryRun || len(files) != 1 || string(files[0].Data) != "the manifest" {
			t.Errorf("the host is asked for %v %v", files, options)
		}
		h.put(t, pendingClaim("data"), pod("web", corev1.PodPending))
		go func() {
			h.journal.Step(journal.StepEntry{About: about, Volume: "data", Step: "stage", Status: journal.Done, Took: time.Millisecond})
			time.Sleep(50 * time.Millisecond)
			h.put(t, pod("web", corev1.PodRunning))
		}()
		return api.ApplyResult{Applied: []api.Applied{
			{Kind: "StorageClass", Key: "fast", Action: api.Unchanged},
			{Kind: "PersistentVolumeClaim", Key: "default/data", Action: api.Created}, {Kind: "Pod", Key: "default/web", Action: api.Created},
		}, Warnings: []string{"mind the gap"}}, nil
	}
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "a.yaml"), []byte("the manifest"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := h.run(t, "apply", "-f", directory, "--wait")
	expect(t, "stdout", stdout, "storageclass.storage.k8s.io/fast unchanged\npersistentvolumeclaim/data created\npod/web created\n")
	expect(t, "stderr", stderr, "Warning: mind the gap\ndata: stage 1.0 ms\n")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestApply_saysWhoHasToUseAClaimThatGrows(t *testing.T) {
	h := startTestHost(t)
	claim := pendingClaim("data")
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	claim.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		Conditions: []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}},
	}
	h.onApply = func([]manifest.File, api.ApplyOptions) (api.ApplyResult, error) {
		h.put(t, claim)
		return api.ApplyResult{Applied: []api.Applied{{Kind: "PersistentVolumeClaim", Key: "default/data", Action: api.Configured}}}, nil
	}
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := `PersistentVolumeClaim "default/data" (its volume has grown to 2Gi, and its filesystem grows when a pod uses it)`
	if code, _, stderr := h.run(t, "apply", "-f", file, "--wait", "--timeout=1s"); code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestApply_listsObjectsThatAreNotReady(t *testing.T) {
	h := startTestHost(t)
	cases := map[string]struct {
		phase   corev1.PodPhase
		timeout string
		says    string
	}{
		"in time": {corev1.PodPending, "1s", `not ready after 1s: Pod "default/web" (its phase is Pending): see 'holdfast describe'`},
		"at all":  {corev1.PodFailed, "1m", "pod/web failed: Failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h.onApply = func([]manifest.File, api.ApplyOptions) (api.ApplyResult, error) {
				h.put(t, pod("web", c.phase))
				return api.ApplyResult{Applied: []api.Applied{{Kind: "Pod", Key: "default/web", Action: api.Created}}}, nil
			}
			file := filepath.Join(t.TempDir(), "a.yaml")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			code, _, stderr := h.run(t, "apply", "-f", file, "--wait", "--timeout="+c.timeout)
			if code != 1 || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d, %s", code, stderr)
			}
		})
	}
}

func TestDelete_waitsUntilTheObjectsAreGone(t *testing.T) {
	h := startTestHost(t)
	h.put(t, pendingClaim("data"), pod("web", corev1.PodRunning))
	var asked []string
	h.onDelete = func(kind store.Kind, key string) (api.Deleted, error) {
		asked = append(asked, kind.Kind+" "+key)
		if kind.Kind == "StorageClass" {
			return api.Deleted{}, api.ErrNotFound
		}
		if kind.Kind == "Pod" {
			return api.Deleted{Gone: true}, h.store.Update(func(tx *store.Tx) error { return tx.Pods().Delete(key) })
		}
		claim := pendingClaim("data")
		claim.DeletionTimestamp = new(metav1.Now())
		h.put(t, claim)
		time.AfterFunc(50*time.Millisecond, func() {
			_ = h.store.Update(func(tx *store.Tx) error { return tx.Claims().Delete(key) })
		})
		return api.Deleted{Waits: []string{"Pod \"default/web\" uses it"}}, nil
	}
	file := filepath.Join(t.TempDir(), "a.yaml")
	manifests := "# a comment\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}}\n" +
		"---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: web}}\n"
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := h.run(t, "delete", "-f", file)
	expect(t, "stdout", stdout, "pod \"web\" deleted\npersistentvolumeclaim \"data\" deleted\n")
	stderr = strings.Replace(stderr, "persistentvolumeclaim \"data\": Pod \"default/web\" uses it\n", "", 1) // if it takes long
	expect(t, "stderr", stderr, "holdfast: storageclasses \"fast\" not found\n")
	expect(t, "subjects", strings.Join(asked, ", "), "Pod default/web, PersistentVolumeClaim default/data, StorageClass fast")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	if err := os.WriteFile(file, []byte("  apiVersion: v1\n  kind: Pod\n metadata: {name: web}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr = h.run(t, "delete", "-f", file); code != 1 || !strings.Contains(stderr, "a.yaml: document 1: something follows its end") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	h.put(t, pendingClaim("data"))
	if _, _, stderr = h.run(t, "delete", "pvc", "data", "--wait=false"); stderr != "persistentvolumeclaim \"data\": Pod \"default/web\" uses it\n" {
		t.Errorf("without waiting: %s", stderr)
	}
	if code, _, stderr = h.run(t, "delete", "--ignore-not-found", "sc/fast"); code != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	h.put(t, pod("stuck", corev1.PodRunning))
	h.onDelete = func(store.Kind, string) (api.Deleted, error) {
		stuck := pod("stuck", corev1.PodRunning)
		stuck.DeletionTimestamp = new(metav1.Now())
		h.put(t, stuck)
		return api.Deleted{}, nil
	}
	code, _, stderr = h.run(t, "delete", "pod", "stuck", "--timeout=1s")
	if code != 1 || !strings.Contains(stderr, `pod "default/stuck" is still there after 1s; its deletion continues`) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// afterLines ends a command as ^C does, after some lines of output.
type afterLines struct {
	count     int
	interrupt context.CancelFunc
}

func (a *afterLines) Write(data []byte) (int, error) {
	if a.count--; a.count == 0 {
		a.interrupt()
	}
	return len(data), nil
}

func TestWait_thatIsInterruptedSaysThatTheHostContinues(t *testing.T) {
	h := startTestHost(t)
	h.onApply = func([]manifest.File, api.ApplyOptions) (api.ApplyResult, error) {
		h.put(t, pendingClaim("data"))
		return api.ApplyResult{Applied: []api.Applied{{Kind: "PersistentVolumeClaim", Key: "default/data", Action: api.Created}}}, nil
	}
	h.onDelete = func(store.Kind, string) (api.Deleted, error) {
		for _, name := range []string{"data", "more"} {
			claim := pendingClaim(name)
			claim.DeletionTimestamp = new(metav1.Now())
			h.put(t, claim)
		}
		return api.Deleted{}, nil
	}
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.put(t, &snapshotv1.VolumeSnapshot{ObjectMeta: meta("backup")})
	const notReady = `interrupted; the host continues. Not ready: PersistentVolumeClaim "default/data" (the host has not reported it yet)` +
		`: see 'holdfast describe'; to remove what was created: 'holdfast delete persistentvolumeclaim/data'`
	for _, c := range []struct{ line, want string }{
		{"apply --wait -f " + file, notReady},
		{"create pvc data --size 1Gi --wait", notReady},
		{"restore data --from backup --size 1Gi --wait", notReady},
		{"delete pvc data", `persistentvolumeclaim "default/data" is still there (interrupted); its deletion continues: see 'holdfast describe persistentvolumeclaim/data'`},
		{"delete pvc data more", `; not waited for: the deletion of persistentvolumeclaim "default/more"`},
		{"hold web --volume data:/srv", `interrupted; the host takes away what it mounted for a new hold "web": 'holdfast get pod web' shows one that stays, and 'holdfast release web' ends it`},
		{"release web", `interrupted; the host continues to release "web": 'holdfast get pod web' shows it until that is done`},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		h.onHold = interrupt
		out := afterLines{count: strings.Count(c.line, "data more") + 1, interrupt: interrupt}
		var stderr bytes.Buffer
		code := Run(ctx, "", append(strings.Fields(c.line), "--root="+h.root), &out, &stderr)
		if code != 1 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: exit code %d, %s\nwant %s", c.line, code, &stderr, c.want)
		}
	}
}

func TestWait_thatIsInterruptedNamesNothingToRemoveThatWasThere(t *testing.T) {
	applied := []api.Applied{
		{Kind: "PersistentVolumeClaim", Key: "default/data", Action: api.Configured},
		{Kind: "PersistentVolumeClaim", Key: "shop/data", Action: api.Created},
		{Kind: "Pod", Key: "shop/web", Action: api.Created}, {Kind: "Pod", Key: "default/web", Action: api.Created},
	}
	want := "; to remove what was created: 'holdfast delete pod/web persistentvolumeclaim/data -n shop' and 'holdfast delete pod/web'"
	if got := howToRemove(applied); got != want {
		t.Errorf("%q", got)
	}
	if got := howToRemove(applied[:1]); got != "" {
		t.Errorf("%q", got)
	}
}

func TestLogs_sayWhereTheOutputDoesNotGo(t *testing.T) {
	h := startTestHost(t)
	var stderr bytes.Buffer
	code := Run(t.Context(), "", []string{"logs", "web", "--root=" + h.root}, full{}, &stderr)
	if code != 1 || stderr.String() != "holdfast: the disk is full\n" {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestCompletion_offersTheHostsObjects(t *testing.T) {
	h := startTestHost(t)
	h.put(t, pendingClaim("data"), pendingClaim("more"), pod("web", corev1.PodRunning),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	root := "--root=" + h.root
	cases := []struct {
		arguments []string
		want      string
	}{
		{[]string{"get", root, "pvc", ""}, "data more"},
		{[]string{"get", root, "pvc", "data", ""}, "more"},
		{[]string{"describe", root, "pvc/"}, "pvc/data pvc/more"},
		{[]string{"delete", root, "pvc/data", ""}, ""},
		{[]string{"logs", root, ""}, "web"},
		{[]string{"get", root, "-n", ""}, "team"},
		{[]string{"get", root, "pods", "-o", ""}, "wide yaml json name"},
		{[]string{"get", root, "nothing", ""}, ""},
		{[]string{"why", root, ""}, "pod/ pvc/ pv/ volume/ snapshot/"},
		{[]string{"why", root, "pvc/"}, "pvc/data pvc/more"},
		{[]string{"why", root, "pvc/data", ""}, ""},
		{[]string{"why", root, "-n", ""}, "team"},
		{[]string{"why", root, "-o", ""}, "json"},
		{[]string{"export", root, ""}, "pvc/"},
		{[]string{"export", root, "pvc/data", "pvc/"}, "pvc/data pvc/more"},
		{[]string{"describe", root, "drivers", ""}, "d.example"},
		{[]string{"get", root, "drivers/"}, "drivers/d.example"},
		{[]string{"get", "--root=/does/not/exist", "pvc", ""}, ""},
	}
	for _, c := range cases {
		t.Run(strings.Join(c.arguments[:1], " ")+" "+strings.Join(c.arguments[2:], " "), func(t *testing.T) {
			code, stdout, _ := run(t, append([]string{"__completeNoDesc"}, c.arguments...)...)
			words := strings.Fields(stdout)
			if got := strings.Join(words[:len(words)-1], " "); code != 0 || got != c.want {
				t.Errorf("completion offers %q (exit code %d), want %q", got, code, c.want)
			}
		})
	}
	for begun, want := range map[string]string{"": "\ndrivers\nall\n", "pods,": "\npods,pvc\n"} {
		if _, stdout, _ := run(t, "__completeNoDesc", "get", begun); !strings.Contains(stdout, want) {
			t.Errorf("of %q the kinds are %q", begun, stdout)
		}
	}
	if _, stdout, _ := run(t, "__completeNoDesc", "get", ""); !strings.Contains(stdout, "persistentvolumeclaims\npvc\n") {
		t.Errorf("the kinds are %q", stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, stdout, _ := run(t, "completion", shell); code != 0 || !strings.Contains(stdout, "__complete") {
			t.Errorf("completion %s: exit code %d, %d bytes", shell, code, len(stdout))
		}
	}
}

// TestReference_namesEveryFlagOfTheHostsClients keeps docs/reference whole.
func TestReference_namesEveryFlagOfTheHostsClients(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/apply-get.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []*cobra.Command{newApplyCommand(), newGetCommand(), newDescribeCommand(), newDeleteCommand(), newLogsCommand()} {
		command.Flags().VisitAll(func(flag *pflag.Flag) {
			if !strings.Contains(string(page), "`--"+flag.Name) {
				t.Errorf("the page does not name --%s of %s", flag.Name, command.Name())
			}
		})
	}
}
