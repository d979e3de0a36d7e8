package inline_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/policy/inline"
	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
)

func newPolicy(t testing.TB, o inline.Options) *inline.Policy {
	t.Helper()
	p, err := inline.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func namespaceOf(c policytest.InlineCase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: c.Labels, Annotations: c.Annotations}}
}

// objectOf is the case's object in the case's namespace.
func objectOf(c policytest.InlineCase) inline.Object {
	pod := policytest.Pod(c.Namespace, c.Volumes...)
	object := inline.OfPod(pod)
	if c.Kind != "" {
		object.Kind = c.Kind
	}
	return object
}

// The table, on the function itself: exactly these findings, with messages that
// say what a user needs.
func TestJudge_decidesTheTable(t *testing.T) {
	p := newPolicy(t, policytest.InlineOptions())
	names := map[string]bool{}
	for _, c := range policytest.InlineCases() {
		if names[c.Name] {
			t.Errorf("two cases are called %q", c.Name)
		}
		names[c.Name] = true
		if c.Namespace == "" {
			c.Namespace = "shop"
		}
		found := p.Judge(objectOf(c), namespaceOf(c), policytest.FindInlineDriver)
		var got []policytest.InlineWant
		for _, f := range found {
			got = append(got, policytest.InlineWant{Mode: f.Mode, Rule: f.Rule, Volume: f.Volume})
			for _, part := range []string{objectOf(c).Kind + " shop/app", f.Volume, f.Driver, string(f.Rule)} {
				if !strings.Contains(f.Message, part) {
					t.Errorf("%s: %q does not name %s", c.Name, f.Message, part)
				}
			}
			if _, todo, has := strings.Cut(f.Message, "; "); !has || todo == "" {
				t.Errorf("%s: %q does not say what to do", c.Name, f.Message)
			}
		}
		if missing, extra := difference(c.Want, got), difference(got, c.Want); len(missing)+len(extra) > 0 {
			t.Errorf("%s: missing %v, not wanted %v", c.Name, missing, extra)
		}
	}
}

func difference(a, b []policytest.InlineWant) []policytest.InlineWant {
	return slices.DeleteFunc(slices.Clone(a), func(w policytest.InlineWant) bool { return slices.Contains(b, w) })
}

func TestAdmit_sortsFindingsByWhatIsDone(t *testing.T) {
	var audited []inline.Finding
	options := policytest.InlineOptions()
	options.Audit = func(f inline.Finding) { audited = append(audited, f) }
	pod := policytest.Pod("shop", policytest.Inline("data", policytest.Plain))
	warnings, err := newPolicy(t, options).Admit(pod, nil, policytest.FindInlineDriver)
	if err == nil || !strings.Contains(err.Error(), "(rule profile, enforce)") {
		t.Errorf("refused with %v", err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "(rule profile, warn)") {
		t.Errorf("warnings %q", warnings)
	}
	if len(audited) != 2 || audited[0].Mode != inline.Enforce || audited[1].Mode != inline.Audit {
		t.Errorf("audited %+v", audited)
	}
}

// Without settings a host rejects only requests that no driver could need.
func TestAdmit_withoutSettingsLeavesOrdinaryPodsAlone(t *testing.T) {
	p := newPolicy(t, inline.Options{})
	for volume, refused := range map[*corev1.Volume]bool{
		new(policytest.Inline("a", policytest.Plain)):              false,
		new(policytest.Inline("a", policytest.Unlisted)):           false,
		new(policytest.Inline("a", policytest.Missing)):            false,
		new(policytest.Inline("a", policytest.Persistent)):         true,
		new(policytest.Inline("a", policytest.ReadOnly)):           true,
		new(policytest.Inline("a", "x", "csi.storage.k8s.io/abc")): true,
	} {
		warnings, err := p.Admit(policytest.Pod("shop", *volume), nil, policytest.FindInlineDriver)
		if (err != nil) != refused || len(warnings) > 0 {
			t.Errorf("%+v: %v, %q", volume.CSI, err, warnings)
		}
	}
}

func TestAdmit_leavesAloneWhatIsBeingDeleted(t *testing.T) {
	pod := policytest.Pod("shop", policytest.Inline("data", policytest.Plain))
	pod.DeletionTimestamp = new(metav1.Now())
	p := newPolicy(t, policytest.InlineOptions())
	if warnings, err := p.Admit(pod, nil, policytest.FindInlineDriver); err != nil || warnings != nil {
		t.Errorf("%v, %q", err, warnings)
	}
	if p.Mutate(pod, policytest.FindInlineDriver) != nil {
		t.Error("it was changed")
	}
}

func TestNew_refusesSettingsThatCannotBe(t *testing.T) {
	for _, o := range []inline.Options{
		{Defaults: map[inline.Mode]string{"refuse": "*"}},
		{Defaults: map[inline.Mode]string{inline.Warn: "a.example b.example"}},
		{Exempt: []string{"Not/A/Name"}},
	} {
		if _, err := inline.New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestMutate_makesVolumesAndMountsReadOnly(t *testing.T) {
	volumes := []corev1.Volume{policytest.Inline("asked", policytest.ReadOnly), policytest.Inline("other", policytest.Writable), policytest.Inline("none", policytest.Missing)}
	pod := policytest.Pod("shop", volumes...)
	p := newPolicy(t, policytest.InlineOptions())
	if set := p.Mutate(pod, policytest.FindInlineDriver); len(set) != 5 { // the volume, two mounts of two containers
		t.Fatalf("it set %q", set)
	}
	if err := policytest.CheckReadOnly(pod, "asked"); err != nil {
		t.Error(err)
	}
	if p.Mutate(pod, policytest.FindInlineDriver) != nil {
		t.Error("it changed again")
	}
	if _, err := newPolicy(t, inline.Options{}).Admit(pod, nil, policytest.FindInlineDriver); err != nil {
		t.Errorf("the rule rejects the patched pod: %v", err)
	}
	exempt := policytest.Pod(policytest.ExemptNamespace, volumes...)
	if p.Mutate(exempt, policytest.FindInlineDriver) != nil {
		t.Error("a pod of an exempt namespace was changed")
	}
}

// plainly implements the rules a second time, as a plain list of conditions.
func plainly(v corev1.Volume, namespace *corev1.Namespace) bool {
	allowed := v.CSI.Driver != policytest.Unlisted && slices.Contains(policytest.InlineDefaults(), v.CSI.Driver)
	if text, says := namespace.Annotations["inline.policy.holdfast.dev/enforce"]; says {
		allowed = false
		for _, item := range strings.Split(text, ",") {
			item = strings.TrimSpace(item)
			allowed = allowed || item == "*" || item != "" && item == v.CSI.Driver
		}
	}
	for key := range v.CSI.VolumeAttributes {
		allowed = allowed && !strings.HasPrefix(key, "csi.storage.k8s.io/")
	}
	levels := map[string]int{"restricted": 1, "baseline": 2, "privileged": 3}
	open := true
	for _, mode := range []string{"enforce", "warn", "audit"} {
		open = open && namespace.Labels["pod-security.kubernetes.io/"+mode] == "privileged"
	}
	needs, driver := "privileged", policytest.FindInlineDriver(v.CSI.Driver)
	if driver != nil {
		if level, has := driver.Labels["security.openshift.io/csi-ephemeral-volume-profile"]; has {
			needs = level
		}
		if level, has := driver.Labels["policy.holdfast.dev/inline-profile"]; has {
			needs = level
		}
		wants := driver.Labels["policy.holdfast.dev/inline-read-only"] == "true"
		allowed = allowed && (!wants || v.CSI.ReadOnly != nil && *v.CSI.ReadOnly)
		allowed = allowed && slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral)
	}
	has := max(levels[namespace.Labels["pod-security.kubernetes.io/enforce"]], 1)
	return allowed && (open || levels[needs] > 0 && has >= levels[needs])
}

// For any texts, the decision is that of the plain list, nothing panics,
// and messages stay short and on one line.
func FuzzAdmit(f *testing.F) {
	f.Add("data", policytest.Restricted, "size", "*", "baseline", "app", false)
	f.Add("a\nb", "x\x00y", "csi.storage.k8s.io/x", "x, y", "privileged", "\x1b[31m", true)
	f.Add("", "", "", "", "", "", false)
	for _, driver := range policytest.InlineDrivers() {
		f.Add("data", driver.Name, "size", "*,"+driver.Name, "baseline", "app", false)
	}
	p := newPolicy(f, policytest.InlineOptions())
	f.Fuzz(func(t *testing.T, name, driver, key, annotation, level, pod string, readOnly bool) {
		volume := policytest.Inline(name, driver, key)
		volume.CSI.ReadOnly = &readOnly
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"pod-security.kubernetes.io/enforce": level},
			Annotations: map[string]string{"inline.policy.holdfast.dev/enforce": annotation},
		}}
		object := policytest.Pod("shop", volume)
		object.Name = pod
		_, err := p.Admit(object, namespace, policytest.FindInlineDriver)
		if want := plainly(volume, namespace); (err == nil) != want {
			t.Errorf("admitted is %v, want %v: %v", err == nil, want, err)
		}
		if err == nil {
			return
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !strings.HasPrefix(line, "Pod shop/") || len(line) > 2500 || strings.ContainsAny(line, "\r\x00\x1b") {
				t.Errorf("message %q", line)
			}
		}
	})
}

// The chart has the same keys and the same messages; its decisions are compared
// on a real API server (test/faults).
func TestMessages_areThoseOfTheChart(t *testing.T) {
	var chart strings.Builder
	for _, file := range []string{"_inlinepolicy.tpl", "inlinepolicy.yaml"} {
		text, err := os.ReadFile("../../../deploy/helm/holdfast/templates/" + file)
		if err != nil {
			t.Fatal(err)
		}
		chart.Write(text)
	}
	for _, key := range []string{inline.ListPrefix, inline.ProfileLabel, inline.OpenShiftProfileLabel, inline.ReadOnlyLabel, inline.LevelPrefix, inline.ReservedPrefix} {
		if !strings.Contains(chart.String(), key) {
			t.Errorf("the chart lacks the key %s", key)
		}
	}
	p, todo := newPolicy(t, policytest.InlineOptions()), map[string]bool{}
	for _, c := range policytest.InlineCases() {
		for _, finding := range p.Judge(objectOf(c), namespaceOf(c), policytest.FindInlineDriver) {
			_, text, _ := strings.Cut(finding.Message, "; ") // what to do, which has no names but the mode's
			todo[strings.ReplaceAll(text, "/"+string(finding.Mode), "/%s")] = true
		}
	}
	words := strings.ReplaceAll(chart.String(), "annotation %s", "annotation "+inline.ListPrefix+"%s")
	for text := range todo {
		if !strings.Contains(words, text) {
			t.Errorf("the chart lacks %q", text)
		}
	}
	if len(todo) != 6 {
		t.Errorf("the cases have %d kinds of messages", len(todo))
	}
}
