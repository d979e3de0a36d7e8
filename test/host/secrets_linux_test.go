package host_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const (
	// clearText is the value of the Secret, that is in no file.
	clearText = "correct-horse-battery-staple"
	aSecret   = "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: " + clearText + "}\n"
	aReader   = `
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    command: [sh, -c, 'test "$PASSWORD" = "$(cat /run/db/password)" && test "$DB_password" = "$PASSWORD" && echo ${#PASSWORD} characters; exec sleep infinity']
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]
    envFrom: [{prefix: DB_, secretRef: {name: db}}]
    volumeMounts: [{name: db, mountPath: /run/db}]
  volumes: [{name: db, secret: {secretName: db, defaultMode: 256}}]
`
)

// inClear are the files below a directory with the Secret's value.
func inClear(t *testing.T, directory string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(clearText)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A container gets a Secret as variables and as files, the host's directory does
// not, and a pod whose Secret is missing starts when that comes.
func TestSecret_reachesTheContainerOnly(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(aReader)
	m.whyUntil("pod/reader", "Secret db does not exist in namespace default", "holdfast apply")
	m.apply(strings.Replace(aSecret, "password:", "other:", 1))
	m.whyUntil("pod/reader", `Secret db in namespace default has no key "password"`)
	m.apply(aSecret)
	m.running("reader")
	m.until("the container has the Secret", limitOfTest, func() bool {
		_, said, _ := m.holdfast("logs", "reader")
		return strings.Contains(said, "28 characters")
	})
	if found := inClear(t, m.root); len(found) > 0 {
		t.Errorf("the Secret is in clear in %v", found)
	}
	m.kill()
	m.start()
	if found := inClear(t, m.root); len(found) > 0 {
		t.Errorf("after a restart, the Secret is in clear in %v", found)
	}
	if pod := get[*corev1.Pod](m, "pods", "default", "reader"); pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the container was restarted %d times", pod.Status.ContainerStatuses[0].RestartCount)
	}
	if code, said, warned := m.holdfast("delete", "secret/db"); code != 0 || !strings.Contains(warned, "default/reader") {
		t.Errorf("deleting the Secret ends with %d and says %q, %q", code, said, warned)
	}
	m.mustRun("delete", "pod/reader")
}
