package run_test

import (
	"strings"
	"testing"
)

// scratchPod writes to an inline volume; extra is added to the namespace and the
// CSIDriver.
func scratchPod(namespace, driver string) string {
	return `
apiVersion: v1
kind: Namespace
metadata: {name: shop` + namespace + `}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: local.holdfast.dev` + driver + `}
spec: {attachRequired: false, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: shop}
spec:
  restartPolicy: Never
  containers:
  - {name: main, command: [sh, -c, "if touch /data/x 2>/dev/null; then echo written; else echo read-only; fi"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - {name: data, csi: {driver: local.holdfast.dev, volumeAttributes: {size: 16Mi}}}
`
}

const (
	readOnlyLabel = `, labels: {policy.holdfast.dev/inline-read-only: "true"}`
	notAllowed    = "Pod shop/app: inline volume data: driver local.holdfast.dev is not allowed in namespace shop (rule allowed-drivers, "
)

func listOf(mode string) string {
	return ", annotations: {inline.policy.holdfast.dev/" + mode + ": other.csi.example}"
}

// The rules of inline volumes apply without a host as they do next to one; a refused
// volume leaves nothing behind.
func TestPolicy_refusesInlineVolumes(t *testing.T) {
	cases := []struct {
		name, namespace, driver string
		flags                   []string
		want                    string
	}{
		{"by the namespace", listOf("enforce"), "", nil, notAllowed + "enforce)"},
		{"by the default", "", "", []string{"--inline-enforce=other.csi.example"}, notAllowed + "enforce)"},
		{"that a driver wants read-only", "", readOnlyLabel, nil,
			"Pod shop/app: inline volume data: driver local.holdfast.dev has read-only inline volumes only (rule read-only); set csi.readOnly: true"},
		{"of a driver for another level", ", labels: {pod-security.kubernetes.io/enforce: baseline}", ", labels: {policy.holdfast.dev/inline-profile: privileged}", []string{"--inline-profiles"},
			"Pod shop/app: inline volume data: driver local.holdfast.dev is for namespaces of level privileged, and shop is baseline (rule profile, enforce)"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			file := m.write(scratchPod(c.namespace, c.driver))
			r := m.run(nil, append(c.flags, "-f", file)...)
			if want := "holdfast: " + file + ": document 3: " + c.want; r.code != 1 || !strings.Contains(r.stderr, want) || r.stdout != "" {
				t.Errorf("code %d\ngot  %s\nwant %s", r.code, r.stderr, want)
			}
			m.isIdle()
			// Nothing of the manifest was stored: the refusal was not for lack of it.
			only := scratchPod("", "")
			if r := m.succeeds("-f", m.write(only[strings.LastIndex(only, "---"):])); r.stdout != "written\n" {
				t.Errorf("without the rule it says %q, %s", r.stdout, r.stderr)
			}
		})
	}
}

func TestPolicy_warnsAndAudits(t *testing.T) {
	m := newMachine(t)
	if r := m.succeeds("-f", m.write(scratchPod(listOf("warn"), ""))); r.stdout != "written\n" || !strings.Contains(r.stderr, "Warning: "+notAllowed+"warn)") {
		t.Errorf("it says %q, %s", r.stdout, r.stderr)
	}
	r := m.succeeds("--log-level=info", "-f", m.write(scratchPod(listOf("audit"), "")))
	if !strings.Contains(r.stderr, "mode=audit rule=allowed-drivers") || strings.Contains(r.stderr, "Warning: ") {
		t.Errorf("it says %s", r.stderr)
	}
}

// Labels that an earlier run stored apply to a pod whose manifest does not repeat them.
func TestPolicy_isThatOfTheNamespaceThatIsThere(t *testing.T) {
	m := newMachine(t)
	whole := scratchPod(listOf("enforce"), "")
	last := strings.LastIndex(whole, "---")
	rules, only := m.write(whole[:last]), m.write(whole[last:])
	m.succeeds("-f", rules)
	if r := m.run(nil, "-f", only); r.code != 1 || !strings.Contains(r.stderr, notAllowed+"enforce)") {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
	if r := m.succeeds("--inline-exempt=shop", "-f", only); r.stdout != "written\n" {
		t.Errorf("an exempt namespace: %q, %s", r.stdout, r.stderr)
	}
}

func TestPolicy_setsReadOnly(t *testing.T) {
	m := newMachine(t)
	if r := m.succeeds("--inline-set-read-only", "-f", m.write(scratchPod("", readOnlyLabel))); r.stdout != "read-only\n" {
		t.Errorf("it says %q, %s", r.stdout, r.stderr)
	}
}
