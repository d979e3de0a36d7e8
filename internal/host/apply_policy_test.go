package host

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/policy/inline"
)

const anInlinePod = `apiVersion: v1
kind: Pod
metadata: {name: app, namespace: shop}
spec:
  containers:
  - {name: c, command: ["true"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - {name: data, csi: {driver: readonly.csi.example}}
`

const readOnlyDriver = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: readonly.csi.example, labels: {policy.holdfast.dev/inline-read-only: "true"}}
spec: {volumeLifecycleModes: [Ephemeral], podInfoOnMount: true, attachRequired: false}
`

func withPolicy(t *testing.T, mutates bool) *Host {
	t.Helper()
	rules, err := inline.New(inline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := newApplier(t)
	h.options.Admit = rules.Admit
	if mutates {
		h.options.Mutate = rules.Mutate
	}
	return h
}

// The table of rules applied to a pod on a host: Apply refuses and warns as the rules
// do, and a refused pod is not stored.
func TestApply_refusesInlineVolumesAsThePolicyDoes(t *testing.T) {
	h := withPolicy(t, false)
	mustApply(t, h, readOnlyDriver)
	for text, rule := range map[string]inline.Rule{
		anInlinePod: inline.ReadOnly,
		strings.Replace(anInlinePod, "driver: readonly.csi.example", "driver: readonly.csi.example, readOnly: true, volumeAttributes: {csi.storage.k8s.io/ephemeral: x}", 1):                           inline.ReservedKeys,
		strings.Replace(anInlinePod, "driver: readonly.csi.example", "driver: readonly.csi.example, readOnly: true", 1) + "---\n" + namespaceThatAllows("other.csi.example"):                           inline.AllowedDrivers,
		strings.Replace(anInlinePod, "driver: readonly", "driver: claims", 1) + "---\n" + strings.NewReplacer("[Ephemeral]", "[Persistent]", "name: readonly", "name: claims").Replace(readOnlyDriver): inline.Lifecycle,
	} {
		if _, err := h.try(text); !errors.Is(err, api.ErrForbidden) || !strings.Contains(err.Error(), "rule "+string(rule)) {
			t.Errorf("rule %s: %v", rule, err)
		}
		err := h.store.View(func(tx *store.Tx) error {
			if pod, err := tx.Pods().Get("shop/app"); err != nil || pod != nil {
				return fmt.Errorf("there is %v (%w)", pod, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("rule %s: %v", rule, err)
		}
	}
	mustApply(t, h, strings.Replace(anInlinePod, "driver: readonly.csi.example", "driver: readonly.csi.example, readOnly: true", 1))
}

func namespaceThatAllows(driver string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {" + inline.ListPrefix + "enforce: " + driver + "}}\n"
}

// A manifest may be applied again: it says less than the pod that was made of it.
func TestApply_makesInlineVolumesReadOnlyAndKnowsThemAgain(t *testing.T) {
	h := withPolicy(t, true)
	mustApply(t, h, readOnlyDriver+"---\n"+anInlinePod)
	pod := stored(t, h, (*store.Tx).Pods, "shop/app")
	check := func(pod *corev1.Pod) {
		if csi := pod.Spec.Volumes[0].CSI; csi.ReadOnly == nil || !*csi.ReadOnly || !pod.Spec.Containers[0].VolumeMounts[0].ReadOnly {
			t.Errorf("%+v, %+v", csi, pod.Spec.Containers[0].VolumeMounts)
		}
	}
	check(pod)
	if result := mustApply(t, h, anInlinePod); result.Applied[0].Action != api.Unchanged {
		t.Errorf("the second time: %+v", result.Applied)
	}
	if result := mustApply(t, h, strings.Replace(anInlinePod, "name: app,", "name: app, labels: {a: b},", 1)); result.Applied[0].Action != api.Configured {
		t.Errorf("with a label: %+v", result.Applied)
	}
	check(stored(t, h, (*store.Tx).Pods, "shop/app"))
	if _, err := h.try(strings.Replace(anInlinePod, "mountPath: /data", "mountPath: /other", 1)); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("another mount: %v", err)
	}
	// A pod from before the driver asked continues as it is.
	old := withPolicy(t, true)
	mustApply(t, old, strings.Replace(readOnlyDriver, `"true"`, `"false"`, 1)+"---\n"+anInlinePod)
	mustApply(t, old, readOnlyDriver)
	if result := mustApply(t, old, anInlinePod); result.Applied[0].Action != api.Unchanged {
		t.Errorf("a pod from before: %+v", result.Applied)
	}
}
