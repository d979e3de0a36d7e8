package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// ask sends a request as any program would.
func (f *fixture) ask(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	asked, err := http.NewRequest(method, "http://host"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := f.http.Do(asked)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

func TestServer_answersEachPath(t *testing.T) {
	f := serve(t)
	f.put(t, claimNamed("data", nil), classNamed("fast"))
	f.journal.Record(journal.Notice{About: journal.Ref{Kind: "PersistentVolumeClaim", Key: "default/data", UID: "uid-1"}, Reason: "Provisioning", Message: "soon"})
	f.journal.Record(journal.Notice{About: journal.Ref{Kind: "StorageClass", Key: "fast"}, Warning: true, Reason: "Odd", Message: "odd"})
	cases := []struct {
		method, path, body string
		code               int
		says               string
	}{
		{"GET", "/api/v1/persistentvolumeclaims", "", 200, `"kind":"PersistentVolumeClaimList","apiVersion":"v1"`},
		{"GET", "/api/v1/namespaces/default/persistentvolumeclaims", "", 200, `"resourceVersion":"2"`},
		{"GET", "/api/v1/namespaces/other/persistentvolumeclaims", "", 200, `"items":[]`},
		{"GET", "/api/v1/namespaces/default/persistentvolumeclaims/data", "", 200, `"kind":"PersistentVolumeClaim"`},
		{"GET", "/api/v1/namespaces/default/persistentvolumeclaims/none", "", 404, `persistentvolumeclaims \"none\" not found`},
		{"GET", "/api/v1/persistentvolumeclaims/data", "", 400, "are in namespaces"},
		{"GET", "/api/v1/persistentvolumeclaims?fieldSelector=metadata.name%3Dno", "", 200, `"items":[]`},
		{"GET", "/api/v1/persistentvolumeclaims?fieldSelector=spec.x%3Dno", "", 400, `no field \"spec.x\"`},
		{"GET", "/api/v1/persistentvolumeclaims?labelSelector=%3D%3D", "", 400, "labelSelector"},
		{"GET", "/api/v1/persistentvolumeclaims?labelSelector=a%3Db", "", 200, `"items":[]`},
		{"GET", "/api/v1/persistentvolumeclaims?watch=1&resourceVersion=x", "", 400, "is not a version"},
		{"GET", "/apis/storage.k8s.io/v1/storageclasses/fast", "", 200, `"provisioner":"x.example"`},
		{"GET", "/apis/storage.k8s.io/v1beta1/storageclasses/fast", "", 404, "nothing at"},
		{"GET", "/apis/storage.k8s.io/v1/namespaces/default/storageclasses/fast", "", 404, "nothing at"},
		{"GET", "/api/v1/namespaces/default/pods/web/status", "", 404, "have no status"},
		{"GET", "/api/v1/namespaces/default/pods/web/log?tailLines=3", "", 200, "{Namespace:default Pod:web Container: Follow:false Previous:false Tail:3 Since:0001-01-01 00:00:00 +0000 UTC Timestamps:false}"},
		{"GET", "/api/v1/namespaces/default/pods/web/log?sinceTime=2026-01-02T03:04:05Z&timestamps=true", "", 200, "Tail:-1 Since:2026-01-02 03:04:05 +0000 UTC Timestamps:true}"},
		{"GET", "/api/v1/namespaces/default/pods/web/log?sinceTime=now", "", 400, "is not a time"},
		{"GET", "/api/v1/namespaces/default/pods/web/log?sinceSeconds=0", "", 400, "is not a number of seconds"},
		{"GET", "/api/v1/namespaces/default/pods/web/log?sinceSeconds=9&sinceTime=2026-01-02T03:04:05Z", "", 400, "only one can be given"},
		{"GET", "/api/v1/namespaces/default/pods/web/log?tailLines=-3", "", 400, "not a number of lines"},
		{"POST", "/api/v1/namespaces/default/pods", "{}", 405, "POST /apis/holdfast.dev/v1/apply"},
		{"PATCH", "/apis/storage.k8s.io/v1/storageclasses/fast", "{}", 405, "MethodNotAllowed"},
		{"DELETE", "/apis/storage.k8s.io/v1/storageclasses/fast", "", 200, `"status":"Success"`},
		{"DELETE", "/apis/storage.k8s.io/v1/storageclasses", "", 405, "MethodNotAllowed"},
		{"DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/data", `{"preconditions":{"uid":"u","resourceVersion":"7"}}`, 202, "uses it"},
		{"DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/data", `{"dryRun":["All"]}`, 400, "dryRun"},
		{"DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/data", `{"propagationPolicy":"Orphan"}`, 400, "Orphan"},
		{"GET", "/api/v1/namespaces/default/events", "", 200, `"involvedObject":{"kind":"PersistentVolumeClaim","namespace":"default","name":"data","uid":"uid-1","apiVersion":"v1"},"reason":"Provisioning"`},
		{"GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind%3DStorageClass,type%3DWarning", "", 200, `"reason":"Odd"`},
		{"GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dno", "", 200, `"items":[]`},
		{"DELETE", "/api/v1/namespaces/default/events/x", "", 405, "MethodNotAllowed"},
		{"GET", "/apis/holdfast.dev/v1/journal?kind=PersistentVolumeClaim&key=default/data", "", 200, `"reason":"Provisioning"`},
		{"GET", "/apis/holdfast.dev/v1/journal?after=1", "", 200, `"sequence":2`},
		{"GET", "/apis/holdfast.dev/v1/journal?kind=Pod", "", 400, "go together"},
		{"GET", "/apis/holdfast.dev/v1/drivers", "", 200, `[{"name":"x.example"`},
		{"GET", "/apis/holdfast.dev/v1/state?kind=pods&key=default/web", "", 200, `"pods default/web"`},
		{"GET", "/apis/holdfast.dev/v1/state?kind=Deployment&key=x", "", 400, "none that this host has"},
		{"GET", "/apis/holdfast.dev/v1/stats?claim=default/data", "", 200, `"available":6`},
		{"GET", "/apis/holdfast.dev/v1/stats", "", 400, "claim is not given"},
		{"GET", "/apis/holdfast.dev/v1/mounts?pod=default/web", "", 200, `"error":"it is gone"`},
		{"GET", "/apis/holdfast.dev/v1/mounts", "", 400, "pod is not given"},
		{"GET", "/apis/holdfast.dev/v1/activity", "", 200, `"device":"loop1","counters":{"reads":7,`},
		{"GET", "/apis/holdfast.dev/v1/progress", "", 200, `"progress":{"doing":"copying","done":1,"total":2}`},
		{"GET", "/apis/holdfast.dev/v1/version", "", 200, "v1.2.3"},
		{"GET", "/apis/holdfast.dev/v1/healthz", "", 200, "ok"},
		{"POST", "/apis/holdfast.dev/v1/apply?dryRun=true&name=x.yaml", "a: b", 200, `"action":"created"`},
		{"POST", "/apis/holdfast.dev/v1/apply?dryRun=perhaps", "a: b", 400, "dryRun"},
		{"PUT", "/apis/holdfast.dev/v1/apply", "a: b", 404, "nothing at"},
		{"POST", "/apis/holdfast.dev/v1/holds", `{"name":"h"}`, 200, `"path":"/p"`},
		{"POST", "/apis/holdfast.dev/v1/holds?lease=life", `{"name":"h"}`, 400, "lease"},
		{"DELETE", "/apis/holdfast.dev/v1/holds/default/h", "", 200, ""},
		{"GET", "/", "", 404, "nothing at /"},
		{"GET", "/api", "", 200, "APIVersions"},
		{"GET", "/apis/snapshot.storage.k8s.io/v1", "", 200, "volumesnapshots"},
	}
	for _, c := range cases {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			code, body := f.ask(t, c.method, c.path, c.body)
			if code != c.code || !strings.Contains(body, c.says) {
				t.Errorf("the answer is %d %s, want %d with %s", code, body, c.code, c.says)
			}
		})
	}
	if f.host.applied[0].Name != "x.yaml" || !f.host.options.DryRun || f.host.deleted[1] != (DeleteOptions{UID: "u", ResourceVersion: "7"}) {
		t.Errorf("the host was called with %v, %v, %v", f.host.applied, f.host.options, f.host.deleted)
	}
}

func TestServer_neverGivesTheValuesOfSecrets(t *testing.T) {
	f := serve(t)
	const value = "cGFzc3dvcmQ="
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key", Annotations: map[string]string{lastApplied: value}},
		Data:       map[string][]byte{"token": []byte("password")}, StringData: map[string]string{"x": value},
	}
	f.put(t, secret)
	var seen bytes.Buffer
	for _, path := range []string{"/api/v1/secrets", "/api/v1/namespaces/default/secrets/key"} {
		_, body := f.ask(t, "GET", path, "")
		seen.WriteString(body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := f.Watch(ctx, kindNamed("secrets"), ListOptions{}, func(event WatchEvent) error {
		data, err := json.Marshal(event.Object)
		seen.Write(data)
		if event.Object.GetLabels() != nil {
			cancel()
		} else {
			secret.Labels = map[string]string{"a": "b"}
			f.put(t, secret)
		}
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if text := seen.String(); strings.Contains(text, value) || strings.Contains(text, "password") || strings.Count(text, `"token":""`) != 4 {
		t.Errorf("the answers are %s", text)
	}
}

// Unlike a Secret's, the values of a ConfigMap may be read, also in a watch.
func TestServer_givesTheValuesOfConfigMaps(t *testing.T) {
	f := serve(t)
	f.put(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"level": "debug"}})
	if _, body := f.ask(t, "GET", "/api/v1/namespaces/default/configmaps/c", ""); !strings.Contains(body, `"level":"debug"`) {
		t.Errorf("the answer is %s", body)
	}
	seen := errors.New("seen")
	err := f.Watch(t.Context(), kindNamed("configmaps"), ListOptions{}, func(event WatchEvent) error {
		if config := event.Object.(*corev1.ConfigMap); config.Data["level"] != "debug" {
			t.Errorf("the watch has %v", config.Data)
		}
		return seen
	})
	if !errors.Is(err, seen) {
		t.Error(err)
	}
}

func TestClient_givesTheHostsErrorsBack(t *testing.T) {
	f := serve(t)
	for _, want := range []error{ErrInvalid, ErrConflict, ErrNotFound, ErrForbidden} {
		f.host.err = fmt.Errorf("claim \"data\": %w: because", want)
		_, err := f.Apply(t.Context(), []manifest.File{{Name: "a"}}, ApplyOptions{})
		if !errors.Is(err, want) || err.Error() != f.host.err.Error() {
			t.Errorf("the client says %v, the host %v", err, f.host.err)
		}
	}
	f.host.err = nil
	if _, err := f.Get(t.Context(), kindNamed("pods"), "default", "none"); !apierrors.IsNotFound(err) || !errors.Is(err, ErrNotFound) {
		t.Errorf("a pod that is not there is %v", err)
	}
}

func TestClient_namesTheRemedyWithoutAHost(t *testing.T) {
	root := t.TempDir()
	client := DialRoot(root)
	_, err := client.Version(t.Context())
	want := "no host is running with --root " + root + ": start one with 'holdfast host --root " + root + "'"
	if !errors.Is(err, ErrNoHost) || err.Error() != want {
		t.Errorf("without a socket: %v", err)
	}
	listener, err := net.Listen("unix", filepath.Join(root, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	if _, err = client.Version(t.Context()); !errors.Is(err, ErrNoHost) {
		t.Errorf("with a socket that no host serves: %v", err)
	}
}

func TestServer_takesOnlyBodiesOfASize(t *testing.T) {
	f := serve(t)
	code, body := f.ask(t, "POST", "/apis/holdfast.dev/v1/apply", strings.Repeat("a", maximumBody+1))
	if code != http.StatusRequestEntityTooLarge || f.host.applied != nil {
		t.Errorf("the answer is %d %s", code, body)
	}
	if code, _ = f.ask(t, "POST", "/apis/holdfast.dev/v1/apply", strings.Repeat("a", maximumBody)); code != 200 {
		t.Errorf("the largest body: %d", code)
	}
}

// asAnotherUser is the child's part: it prints the answers.
func asAnotherUser(socket string) int {
	client := Dial(socket)
	_, reads := client.List(context.Background(), kindNamed("pods"), ListOptions{})
	_, writes := client.Apply(context.Background(), nil, ApplyOptions{})
	_, _ = fmt.Printf("read: %v\nwrite: %v\n", reads, writes)
	return 0
}

func TestServer_asksTheKernelWhoConnects(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root to become another user")
	}
	writers, readers := uint32(4001), uint32(4002)
	both := func(o *Options) { o.Group, o.ReadGroup = &writers, &readers }
	cases := []struct {
		name        string
		options     func(*Options)
		uid         uint32
		groups      []uint32
		read, write string
	}{
		{"root", both, 0, nil, "<nil>", "<nil>"},
		{"a stranger", both, 4100, nil, "uid 4100 may not use this host", "uid 4100 may not use this host"},
		{"a stranger without groups", func(*Options) {}, 4100, nil, "permission denied: use sudo", "permission denied: use sudo"},
		{"a reader", both, 4100, []uint32{5, readers}, "<nil>", "uid 4100 may read only"},
		{"a writer", both, 4100, []uint32{writers}, "<nil>", "<nil>"},
		{"the only reader", func(o *Options) { o.ReadGroup = &readers }, 4100, []uint32{readers}, "<nil>", "may read only"},
		{"the only writer", func(o *Options) { o.Group = &writers }, 4100, []uint32{writers}, "<nil>", "<nil>"},
		{"one of another group", func(o *Options) { o.Group = &writers }, 4100, []uint32{readers}, "permission denied", "permission denied"},
		{"one of many groups", both, 4100, manyGroups(readers), "<nil>", "may read only"},
	}
	// The child is a copy of this program that every user may read.
	program := filepath.Join(publicDirectory(t), "test")
	copyProgram(t, program)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, c.options)
			letThrough(t, f.root)
			command := exec.Command(program)
			command.Env = []string{"HOLDFAST_TEST_SOCKET=" + f.socket()}
			command.Dir = "/"
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: 4100, Groups: c.groups}}
			output, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			read, write, _ := strings.Cut(string(output), "\n")
			if !strings.Contains(read, c.read) || !strings.Contains(write, c.write) {
				t.Errorf("it gets\n%swant %s and %s", output, c.read, c.write)
			}
		})
	}
}

func manyGroups(last uint32) []uint32 {
	var groups []uint32
	for group := range uint32(300) {
		groups = append(groups, 10_000+group)
	}
	return append(groups, last)
}

// publicDirectory is one that every user reaches.
func publicDirectory(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	letThrough(t, directory)
	return directory
}

// letThrough lets every user pass the test's directories above a path.
func letThrough(t *testing.T, path string) {
	t.Helper()
	for ; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestLease_endsWithItsConnection(t *testing.T) {
	f := serve(t)
	request := HoldRequest{Namespace: "default", Name: "h", Holder: "a test", Volumes: []HoldVolume{{Name: "data", Claim: "data"}}}
	lease, err := f.Lease(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if lease.Volumes["data"].Path != "/p" || !f.host.held[0].Lease || f.host.held[0].PID != int32(os.Getpid()) {
		t.Errorf("the answer is %+v to %+v", lease.HoldAnswer, f.host.held)
	}
	select {
	case name := <-f.host.released:
		t.Fatalf("%s was released while the lease is held", name)
	case <-time.After(20 * time.Millisecond):
	}
	if err := lease.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case name := <-f.host.released:
		if name != "default/h" {
			t.Errorf("%s was released", name)
		}
	case <-time.After(time.Minute):
		t.Error("the hold is not released")
	}
}

// What is mounted outlives the host; so must a hold.
func TestLease_staysWhenTheHostEnds(t *testing.T) {
	f := serve(t)
	lease, err := f.Lease(t.Context(), HoldRequest{Namespace: "default", Name: "h"})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Close()
	f.stop()
	select {
	case name := <-f.host.released:
		t.Errorf("%s was released", name)
	default:
	}
}

func TestLogs_followUntilTheClientGoes(t *testing.T) {
	f := serve(t)
	gone := make(chan struct{})
	f.host.logs = func(ctx context.Context, _ LogRequest, out io.Writer) error {
		_, _ = io.WriteString(out, "hello\n")
		<-ctx.Done()
		close(gone)
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := f.Logs(ctx, LogRequest{Namespace: "default", Pod: "web", Follow: true, Tail: -1}, writerFunc(func(data []byte) (int, error) {
		if string(data) != "hello\n" {
			t.Errorf("the log says %q", data)
		}
		cancel()
		return len(data), nil
	}))
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-gone
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(data []byte) (int, error) { return f(data) }

// Programs that read a cluster read a host.
func TestServer_isReadByTheClientOfKubernetes(t *testing.T) {
	f := serve(t)
	f.put(t, claimNamed("data", nil), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	config := &rest.Config{Host: "http://host", Transport: f.Transport()}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "web" {
		t.Errorf("the pods are %v (%v)", pods, err)
	}
	if _, err = clients.StorageV1().StorageClasses().Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a class that is not there is %v", err)
	}
	watching, err := clients.CoreV1().PersistentVolumeClaims("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, claimNamed("more", nil))
	if event := <-watching.ResultChan(); event.Type != "ADDED" || event.Object.(*corev1.PersistentVolumeClaim).Name != "more" {
		t.Errorf("the watch says %v", event)
	}
	watching.Stop()
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil || len(lists) != 3 {
		t.Errorf("discovery finds %d groups (%v)", len(lists), err)
	}
	if err = clients.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func FuzzServer_paths(f *testing.F) {
	for _, seed := range []string{"/api/v1/pods", "/apis/a/b/c/d", "/api/v1/namespaces/x/pods/y/log?tailLines=1", "/api/v1/pods?watch=0&fieldSelector=a!=b&labelSelector=a in (b)", "/apis/holdfast.dev/v1/journal?after=-1", "//..//"} {
		f.Add("GET", seed, "")
	}
	f.Add("DELETE", "/api/v1/namespaces/a/pods/b", `{"preconditions":{}}`)
	f.Add("POST", "/apis/holdfast.dev/v1/holds", `{"volumes":[{}]}`)
	root := f.TempDir()
	opened, err := store.Open(root)
	if err != nil {
		f.Fatal(err)
	}
	entries, err := journal.Open(root, discard())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _, _ = entries.Close(), opened.Close() })
	server := NewServer(Options{Store: opened, Journal: entries, Host: &fakeHost{released: make(chan string, 1_000_000)}, Logger: discard()})
	f.Fuzz(func(t *testing.T, method, path, body string) {
		asked, err := http.NewRequest(method, "http://host/", strings.NewReader(body))
		if err != nil {
			return
		}
		where, query, _ := strings.Cut(path, "?")
		asked.URL.Path, asked.URL.RawQuery = "/"+where, query
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // a watch has no end
		defer cancel()
		ctx = context.WithValue(ctx, connectionKey{}, &connection{})
		answer := httptest.NewRecorder()
		server.handle(deadlines{answer}, asked.WithContext(ctx))
		if answer.Code >= 500 && answer.Code != 504 {
			t.Errorf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
	})
}

// deadlines is a recorder that takes deadlines as a connection does.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetReadDeadline(time.Time) error  { return nil }
func (deadlines) SetWriteDeadline(time.Time) error { return nil }
