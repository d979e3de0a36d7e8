package host_test

import (
	"strings"
	"testing"
)

const (
	aConfigMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {level: " + clearText + ", app.conf: listen}\n"
	// aConfigured takes a ConfigMap as a variable, as all variables, as a directory, as
	// one file over a file of the machine, and next to a Secret in one directory.
	aConfigured = `
apiVersion: v1
kind: Pod
metadata: {name: configured}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    command: [sh, -c, 'test "$LEVEL" = "$(cat /etc/conf/level)" && test "$C_level" = "$LEVEL" && test "$(cat /etc/fstab)" = listen && test "$(cat /run/all/password)" = "$LEVEL" && test "$(cat /run/all/sub/level)" = "$LEVEL" && echo all the same; exec sleep infinity']
    env: [{name: LEVEL, valueFrom: {configMapKeyRef: {name: conf, key: level}}}]
    envFrom: [{prefix: C_, configMapRef: {name: conf}}]
    volumeMounts:
    - {name: conf, mountPath: /etc/conf}
    - {name: conf, mountPath: /etc/fstab, subPath: app.conf}
    - {name: all, mountPath: /run/all}
  volumes:
  - {name: conf, configMap: {name: conf}}
  - name: all
    projected: {sources: [{secret: {name: db}}, {configMap: {name: conf, items: [{key: level, path: sub/level}]}}]}
`
)

// A container gets a ConfigMap in every way, the host's directory has it nowhere in clear,
// and a pod whose ConfigMap is missing starts when that comes.
func TestConfigMap_reachesTheContainerOnly(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(aConfigured + "---\n" + aSecret)
	m.whyUntil("pod/configured", "ConfigMap conf does not exist in namespace default", "holdfast apply")
	m.apply(aConfigMap)
	m.running("configured")
	m.until("the container has the ConfigMap", limitOfTest, func() bool {
		_, said, _ := m.holdfast("logs", "configured")
		return strings.Contains(said, "all the same")
	})
	if found := inClear(t, m.root); len(found) > 0 {
		t.Errorf("the values are in clear in %v", found)
	}
	if _, said, _ := m.holdfast("get", "configmap/conf", "-o", "yaml"); !strings.Contains(said, clearText) {
		t.Errorf("get shows %s", said)
	}
	if _, said, _ := m.holdfast("describe", "cm/conf"); !strings.Contains(said, "app.conf (6 bytes)") || strings.Contains(said, clearText) {
		t.Errorf("describe shows %s", said)
	}
	if code, _, warned := m.holdfast("delete", "cm/conf"); code != 0 || !strings.Contains(warned, "default/configured") {
		t.Errorf("deleting it ends with %d and says %q", code, warned)
	}
	m.mustRun("delete", "pod/configured")
}
