package host_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// The markers are planted where a secret enters the host. Each is the value of one place.
const (
	markOfPod      = "marker-of-a-pod-4711"    // a Secret that containers refer to
	markOfCalls    = "marker-of-calls-4712"    // a Secret that the class gives to the driver's calls
	markOfInline   = "marker-of-inline-4713"   // a Secret of an inline volume
	markOfMistakes = "marker-of-mistakes-4714" // a Secret that is refused, in several ways
	markOfBinary   = "marker-of-binary-4715"   // a value that no variable can carry
)

func marks() []string {
	return []string{markOfPod, markOfCalls, markOfInline, markOfMistakes, markOfBinary}
}

const planted = `
apiVersion: v1
kind: Secret
metadata: {name: pod, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"stringData":{"p":"` + markOfPod + `"}}'}}
stringData: {p: ` + markOfPod + `}
---
apiVersion: v1
kind: Secret
metadata: {name: calls}
stringData: {password: ` + markOfCalls + `}
---
apiVersion: v1
kind: Secret
metadata: {name: inline}
stringData: {token: ` + markOfInline + `}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: secretive}
provisioner: local.holdfast.dev
parameters:
  csi.storage.k8s.io/provisioner-secret-name: calls
  csi.storage.k8s.io/provisioner-secret-namespace: default
  csi.storage.k8s.io/node-stage-secret-name: calls
  csi.storage.k8s.io/node-stage-secret-namespace: default
  csi.storage.k8s.io/node-publish-secret-name: calls
  csi.storage.k8s.io/node-publish-secret-namespace: default
  csi.storage.k8s.io/controller-expand-secret-name: calls
  csi.storage.k8s.io/controller-expand-secret-namespace: default
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: secretive, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    command: [sh, -c, 'exec sleep infinity']
    env: [{name: P, valueFrom: {secretKeyRef: {name: pod, key: p}}}]
    envFrom: [{prefix: S_, secretRef: {name: pod}}]
    volumeMounts: [{name: data, mountPath: /srv/data}, {name: scratch, mountPath: /srv/scratch}, {name: s, mountPath: /run/s}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: s, projected: {sources: [{secret: {name: pod}}]}}
  - {name: scratch, csi: {driver: local.holdfast.dev, volumeAttributes: {size: 16Mi}, nodePublishSecretRef: {name: inline}}}
`

// mistakes are refused, or cannot be started; what is said of them must quote no value.
func mistakes() []string {
	binary := base64.StdEncoding.EncodeToString([]byte(markOfBinary + "\x00"))
	return []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: " + markOfMistakes + "!}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: [" + markOfMistakes + "]}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {'a b': " + markOfMistakes + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nimmutable: " + markOfMistakes + "\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: *" + markOfMistakes + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: pod}\ntype: " + markOfMistakes + "\nstringData: {p: " + markOfMistakes + "}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: binary}\ndata: {k: " + binary + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: stuck}\nspec: {containers: [{name: main, command: [cat], envFrom: [{secretRef: {name: binary}}]}]}\n",
	}
}

// surface is something that people see, or a file, by its name.
type surface map[string][]byte

// check reports every marker, as it is and in base64.
func (s surface) check(t *testing.T) {
	t.Helper()
	for name, data := range s {
		for _, mark := range marks() {
			encoded := base64.StdEncoding.EncodeToString([]byte(mark))
			for _, text := range []string{mark, url.QueryEscape(mark), encoded[:len(encoded)-4]} {
				if bytes.Contains(data, []byte(text)) {
					t.Errorf("%s has %q", name, text)
				}
			}
		}
	}
}

// commands adds what the commands say, to standard output and error.
func (s surface) commands(m *machine) {
	for _, line := range []string{
		"get all,secrets,configmaps -o yaml", "get secrets -o yaml", "get secrets -o json", "get pods -o yaml", "get pv -o yaml", "get sc -o yaml", "get events -o yaml",
		"get pods -o wide", "describe secrets", "describe pods", "describe pvc", "describe pv", "describe drivers", "why pod/keeper", "why pod/stuck -o json",
		"export --all", "logs keeper", "exec keeper -- true",
	} {
		words := strings.Fields(line)
		_, said, complained := m.holdfast(words[0], words[1:]...)
		s["holdfast "+line] = []byte(said + complained)
	}
	for i, text := range mistakes() {
		file := filepath.Join(m.t.TempDir(), "m.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
		_, said, complained := m.holdfast("apply", "-f", file)
		s["holdfast apply of mistake "+string(rune('0'+i))] = []byte(said + complained)
	}
}

// answers adds what the API and the status page answer.
func (s surface) answers(m *machine) {
	client := &http.Client{Transport: m.client.Transport()}
	paths := []string{
		"/apis/holdfast.dev/v1/journal", "/apis/holdfast.dev/v1/drivers", "/apis/holdfast.dev/v1/goroutines", "/apis/holdfast.dev/v1/activity",
		"/apis/holdfast.dev/v1/progress", "/apis/holdfast.dev/v1/pools", "/apis/holdfast.dev/v1/state?kind=Pod&key=default/stuck",
		"/apis/holdfast.dev/v1/mounts?pod=default/keeper", "/apis/holdfast.dev/v1/stats?claim=default/data", "/api/v1/events", "/status/",
	}
	for _, kind := range store.Kinds() {
		path := "/api/v1/" + kind.Resource
		if kind.Group != "" {
			path = "/apis/" + kind.GroupVersion().String() + "/" + kind.Resource
		}
		paths = append(paths, path)
	}
	for _, path := range paths {
		request, err := http.NewRequestWithContext(context.WithoutCancel(m.t.Context()), http.MethodGet, "http://host"+path, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			m.t.Fatal(err)
		}
		data, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			m.t.Errorf("GET %s: %s, %v", path, answer.Status, err)
		}
		s["GET "+path] = data
	}
}

// files adds the files of the host, but not what is mounted for users.
func (s surface) files(m *machine) {
	err := filepath.WalkDir(m.root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == store.SecretsKeyName {
			return err
		}
		data, err := os.ReadFile(name)
		s[name] = data
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	log, err := os.ReadFile(m.log.Name())
	if err != nil {
		m.t.Fatal(err)
	}
	s["the log at debug"] = log
}

// report adds the bug report, unpacked.
func (s surface) report(m *machine) {
	file := filepath.Join(m.t.TempDir(), "report.tar.gz")
	s["holdfast bugreport"] = []byte(m.mustRun("bugreport", "--yes", "-o", file))
	data, err := os.Open(file)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = data.Close() }()
	plain, err := gzip.NewReader(data)
	if err != nil {
		m.t.Fatal(err)
	}
	if s["the bug report"], err = io.ReadAll(plain); err != nil {
		m.t.Fatal(err)
	}
	if !bytes.Contains(s["the bug report"], []byte("keeper")) {
		m.t.Error("the bug report has no object")
	}
}

// No surface shows a secret: markers are planted where secrets enter, and everything that
// the host writes and says is searched for them.
func TestSurfaces_showNoSecret(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.mustRun("apply", "-f", writeManifest(t, planted))
	m.running("keeper")
	found := surface{}
	found.commands(m)
	m.whyUntil("pod/stuck", "is not text in UTF-8")
	found.commands(m)
	found.answers(m)
	found.report(m)
	found.files(m)
	found.check(t)
	// The test would see what it searches for: the container has it.
	if _, said, _ := m.holdfast("exec", "keeper", "--", "sh", "-c", "echo $P $S_p; cat /run/s/p"); strings.Count(said, markOfPod) != 3 {
		t.Errorf("the container has %q", said)
	}
	m.mustRun("delete", "pod/keeper", "pod/stuck")
	m.mustRun("delete", "pvc/data")
	m.stop()
	after := surface{}
	after.files(m)
	after.check(t)
	m.start()
}

func writeManifest(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "planted.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
