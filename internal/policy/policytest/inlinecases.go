package policytest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/policy/inline"
)

// InlineCases are cases for every form of the inline rules.
func InlineCases() []InlineCase {
	return slices.Concat(allowedCases(), profileCases(), otherCases(), templateCases(), hostileCases())
}

func allowedCases() []InlineCase {
	const enforce, warn, audit = inline.Enforce, inline.Warn, inline.Audit
	one := []corev1.Volume{Inline("data", Restricted)}
	return []InlineCase{
		{Name: "no volumes"},
		{Name: "no inline volumes", Annotations: allows(enforce, ""), Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}},
		{Name: "a driver of the default list", Volumes: one},
		{Name: "a driver that is not on it", Volumes: []corev1.Volume{Inline("data", Unlisted)}, Want: in(inline.AllowedDrivers, "data", enforce, warn, audit)},
		{Name: "the namespace allows what the default does not", Annotations: allows(enforce, Unlisted),
			Volumes: []corev1.Volume{Inline("data", Unlisted)}, Want: in(inline.AllowedDrivers, "data", warn, audit)},
		{Name: "the namespace allows less than the default", Annotations: allows(enforce, Plain), Volumes: one, Want: in(inline.AllowedDrivers, "data", enforce)},
		{Name: "the namespace warns only", Annotations: allows(warn, Plain), Volumes: one, Want: in(inline.AllowedDrivers, "data", warn)},
		{Name: "the namespace audits only", Annotations: allows(audit, Plain), Volumes: one, Want: in(inline.AllowedDrivers, "data", audit)},
		{Name: "an empty list allows none", Annotations: allows(enforce, ""), Volumes: one, Want: in(inline.AllowedDrivers, "data", enforce)},
		{Name: "a list of blanks and commas allows none", Annotations: allows(enforce, " , ,,"), Volumes: one, Want: in(inline.AllowedDrivers, "data", enforce)},
		{Name: "a star allows all", Annotations: allows(enforce, "*"), Volumes: []corev1.Volume{Inline("data", Unlisted)}, Want: in(inline.AllowedDrivers, "data", warn, audit)},
		{Name: "a star among names", Annotations: allows(enforce, "a.example, * ,b.example"), Volumes: one},
		{Name: "blanks and line ends around names", Annotations: allows(enforce, "  a.example ,\n\t"+Restricted+"\r\n,"), Volumes: one},
		{Name: "a part of a name is none", Annotations: allows(enforce, "*.csi.example,restricted,"+Restricted+".more"), Volumes: one, Want: in(inline.AllowedDrivers, "data", enforce)},
		{Name: "names without a comma are none", Annotations: allows(enforce, Plain+" "+Restricted), Volumes: one, Want: in(inline.AllowedDrivers, "data", enforce)},
		{Name: "the case of a name counts", Annotations: allows(enforce, strings.ToUpper(Restricted)), Volumes: one, Want: in(inline.AllowedDrivers, "data", enforce)},
		{Name: "the second volume", Annotations: allows(enforce, Restricted), Volumes: []corev1.Volume{one[0], Inline("more", Both)}, Want: in(inline.AllowedDrivers, "more", enforce)},
		{Name: "three volumes", Annotations: allows(enforce, ""), Volumes: []corev1.Volume{Inline("a", Both), Inline("b", Restricted), Inline("c", Both)},
			Want: in(inline.AllowedDrivers, "a", enforce)},
		{Name: "an exempt namespace", Namespace: ExemptNamespace, Annotations: allows(enforce, ""), Volumes: []corev1.Volume{Inline("data", Unlisted, inline.ReservedPrefix+"ephemeral")}},
	}
}

func profileCases() []InlineCase {
	const enforce, warn, audit = inline.Enforce, inline.Warn, inline.Audit
	of := func(driver string) []corev1.Volume { return []corev1.Volume{Inline("data", driver)} }
	all := in(inline.Profile, "data", enforce, warn, audit)
	cases := []InlineCase{
		{Name: "no labels at all", Volumes: of(Plain), Want: all},
		{Name: "no label on the driver, an open namespace", Labels: levels("privileged", "privileged", "privileged"), Volumes: of(Plain)},
		{Name: "no label on the namespace, a restricted driver", Volumes: of(Restricted)},
		{Name: "no label on the namespace, a baseline driver", Volumes: of(Baseline), Want: all},
		{Name: "our label before the other", Volumes: of(Both)},
		{Name: "an unknown profile", Volumes: of(Unknown), Want: all},
		{Name: "an unknown profile where only warnings are open", Labels: levels("baseline", "privileged", "privileged"), Volumes: of(Unknown), Want: all},
		{Name: "an unknown profile in an open namespace", Labels: levels("privileged", "privileged", "privileged"), Volumes: of(Unknown)},
		{Name: "enforced only", Labels: levels("", "privileged", "privileged"), Volumes: of(Privileged), Want: in(inline.Profile, "data", enforce)},
		{Name: "warned only", Labels: levels("privileged", "", "privileged"), Volumes: of(Privileged), Want: in(inline.Profile, "data", warn)},
		{Name: "audited only", Labels: levels("privileged", "privileged", ""), Volumes: of(Privileged), Want: in(inline.Profile, "data", audit)},
		{Name: "two drivers", Labels: levels("baseline", "baseline", "baseline"),
			Volumes: []corev1.Volume{Inline("a", Baseline), Inline("b", Privileged), Inline("c", Plain), Inline("d", Privileged)},
			Want:    slices.Concat(in(inline.Profile, "b", enforce, warn, audit), in(inline.Profile, "c", enforce, warn, audit))},
		{Name: "a driver without an object", Volumes: of(Missing), Want: all, Unseen: true},
		{Name: "a driver without an object in an open namespace", Labels: levels("privileged", "privileged", "privileged"), Volumes: of(Missing)},
	}
	order := []string{"restricted", "baseline", "privileged"}
	for has, level := range order {
		for needs, driver := range []string{Restricted, Baseline, Privileged} {
			c := InlineCase{Name: fmt.Sprintf("level %s, %s", level, driver),
				Labels: levels(level, level, level), Volumes: of(driver)}
			if has < needs {
				c.Want = all
			}
			cases = append(cases, c)
		}
	}
	return cases
}

func otherCases() []InlineCase {
	const enforce = inline.Enforce
	readOnly := Inline("data", ReadOnly)
	readOnly.CSI.ReadOnly = new(true)
	writable := Inline("data", ReadOnly)
	writable.CSI.ReadOnly = new(false)
	mixed := Inline("more", ReadOnly)
	open := levels("privileged", "privileged", "privileged")
	return []InlineCase{
		{Name: "own attributes", Volumes: []corev1.Volume{Inline("data", Restricted, "size", "storage.k8s.io/x", "x/csi.storage.k8s.io/", "CSI.storage.k8s.io/ephemeral")}},
		{Name: "a forged key", Volumes: []corev1.Volume{Inline("data", Restricted, "size", "csi.storage.k8s.io/ephemeral")}, Want: in(inline.ReservedKeys, "data", enforce)},
		{Name: "a forged pod", Volumes: []corev1.Volume{Inline("data", Restricted, "csi.storage.k8s.io/pod.namespace")}, Want: in(inline.ReservedKeys, "data", enforce)},
		{Name: "forged tokens", Labels: open, Volumes: []corev1.Volume{Inline("data", Plain, "csi.storage.k8s.io/serviceAccount.tokens")}, Want: in(inline.ReservedKeys, "data", enforce)},
		{Name: "the prefix alone", Volumes: []corev1.Volume{Inline("data", Restricted, "csi.storage.k8s.io/")}, Want: in(inline.ReservedKeys, "data", enforce)},
		{Name: "the second volume has a forged key", Volumes: []corev1.Volume{Inline("a", Both, "x"), Inline("b", Restricted, "csi.storage.k8s.io/x"), Inline("c", Both, "csi.storage.k8s.io/x")},
			Want: in(inline.ReservedKeys, "b", enforce)},
		{Name: "a forged key for a driver without an object", Labels: open, Volumes: []corev1.Volume{Inline("data", Missing, "csi.storage.k8s.io/x")}, Want: in(inline.ReservedKeys, "data", enforce)},
		{Name: "read-only as asked", Volumes: []corev1.Volume{readOnly}},
		{Name: "read-only is not said", Volumes: []corev1.Volume{Inline("data", ReadOnly)}, Want: in(inline.ReadOnly, "data", enforce)},
		{Name: "read-only is denied", Labels: open, Volumes: []corev1.Volume{writable}, Want: in(inline.ReadOnly, "data", enforce)},
		{Name: "one of two is read-only", Volumes: []corev1.Volume{readOnly, mixed}, Want: in(inline.ReadOnly, "more", enforce)},
		{Name: "read-only is not asked", Volumes: []corev1.Volume{Inline("data", Writable)}},
		{Name: "a driver of claims", Volumes: []corev1.Volume{Inline("data", Persistent)}, Want: in(inline.Lifecycle, "data", enforce)},
		{Name: "a driver of claims in an open namespace", Labels: open, Volumes: []corev1.Volume{Inline("data", Persistent)}, Want: in(inline.Lifecycle, "data", enforce)},
		{Name: "everything at once", Annotations: allows(enforce, Both),
			Volumes: []corev1.Volume{Inline("a", Both), Inline("b", Persistent, "csi.storage.k8s.io/x"), Inline("c", ReadOnly)},
			Want: slices.Concat(in(inline.AllowedDrivers, "b", enforce), in(inline.ReservedKeys, "b", enforce),
				in(inline.Lifecycle, "b", enforce), in(inline.ReadOnly, "c", enforce))},
	}
}

// templateCases: templates are warned about and audited, never refused.
func templateCases() []InlineCase {
	const enforce, warn, audit = inline.Enforce, inline.Warn, inline.Audit
	var cases []InlineCase
	for _, kind := range []string{"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob",
		"ReplicationController", "PodTemplate"} {
		cases = append(cases,
			InlineCase{Name: kind + " that is in order", Kind: kind, Volumes: []corev1.Volume{Inline("data", Restricted)}},
			InlineCase{Name: kind + " whose pods are refused", Kind: kind, Annotations: allows(enforce, ""),
				Volumes: []corev1.Volume{Inline("data", Restricted)}},
			InlineCase{Name: kind + " that breaks all rules", Kind: kind, Annotations: allows(warn, "x"),
				Volumes: []corev1.Volume{Inline("a", Plain, "csi.storage.k8s.io/x"), Inline("b", Persistent), Inline("c", ReadOnly)},
				Want: slices.Concat(in(inline.AllowedDrivers, "a", warn), in(inline.ReservedKeys, "a", warn, audit),
					in(inline.Profile, "a", warn, audit), in(inline.Lifecycle, "b", warn,
						audit), in(inline.ReadOnly, "c", warn, audit))})
	}
	return cases
}

func hostileCases() []InlineCase {
	const enforce, warn, audit = inline.Enforce, inline.Warn, inline.Audit
	volumes := make([]corev1.Volume, 1000)
	for i := range volumes {
		volumes[i] = Inline(fmt.Sprint("v", i), Restricted)
	}
	last := slices.Clone(volumes)
	last[999] = Inline("last", Unlisted)
	names := make([]string, 2000)
	for i := range names {
		names[i] = fmt.Sprintf("driver-%d.csi.example", i)
	}
	long := strings.Join(names, ",")
	return []InlineCase{
		{Name: "a thousand volumes", Volumes: volumes},
		{Name: "the last of a thousand", Volumes: last, Want: in(inline.AllowedDrivers, "last", enforce, warn, audit)},
		{Name: "a thousand violations", Annotations: allows(enforce, ""), Volumes: volumes, Want: in(inline.AllowedDrivers, "v0", enforce)},
		{Name: "a long list without it", Annotations: allows(enforce, long), Volumes: volumes[:2], Want: in(inline.AllowedDrivers, "v0", enforce)},
		{Name: "a long list with it", Annotations: allows(enforce, long+","+Restricted), Volumes: volumes[:2]},
		{Name: "an annotation of commas", Annotations: allows(enforce, strings.Repeat(",", 50_000)+Restricted), Volumes: volumes[:2]},
		{Name: "a driver's name in capitals", Annotations: allows(enforce, "*"), Labels: levels("privileged", "privileged", "privileged"),
			Volumes: []corev1.Volume{Inline("data", strings.ToUpper(Plain))}, Want: in(inline.AllowedDrivers, "data", warn, audit)},
	}
}
