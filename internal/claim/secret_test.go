package claim

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(p *corev1.PersistentVolumeClaim) { p.Annotations = map[string]string{key: value} }
}

func TestParseClass_findsEachSecret(t *testing.T) {
	pair := func(stem, name string) map[string]string {
		return map[string]string{stem + "-name": name, stem + "-namespace": "ns"}
	}
	for _, use := range secretUses() {
		got := parsed(t, pair("csi.storage.k8s.io/"+string(use)+"-secret", "own"))
		want := map[SecretUse]SecretTemplate{use: {"own", "ns"}}
		if difference := cmp.Diff(want, got.Secrets); difference != "" || len(got.Parameters) != 0 {
			t.Errorf("%s: %s; the driver sees %v", use, difference, got.Parameters)
		}
		both := pair("csi.storage.k8s.io/secret", "shared")
		maps.Copy(both, pair("csi.storage.k8s.io/"+string(use)+"-secret", "own"))
		got = parsed(t, both)
		for _, other := range secretUses() {
			want := SecretTemplate{"shared", "ns"}
			if other == use {
				want.Name = "own"
			}
			if got.Secrets[other] != want {
				t.Errorf("%s next to a shared secret: %s is %v", use, other, got.Secrets[other])
			}
		}
	}
}

func TestParseClass_readsLegacySecretsAndLeavesThemToTheDriver(t *testing.T) {
	for stem, use := range map[string]SecretUse{
		"csiProvisionerSecret": SecretProvision, "csiControllerPublishSecret": SecretControllerPublish,
		"csiNodeStageSecret": SecretNodeStage, "csiNodePublishSecret": SecretNodePublish,
	} {
		parameters := map[string]string{stem + "Name": "old", stem + "Namespace": "ns"}
		got := parsed(t, parameters)
		if got.Secrets[use] != (SecretTemplate{"old", "ns"}) || !maps.Equal(got.Parameters, parameters) {
			t.Errorf("%s: %v, the driver sees %v", stem, got.Secrets, got.Parameters)
		}
		parameters["csi.storage.k8s.io/"+string(use)+"-secret-name"] = "new"
		parameters["csi.storage.k8s.io/"+string(use)+"-secret-namespace"] = "ns"
		if _, err := ParseClass(class(parameters)); err == nil || !strings.Contains(err.Error(), "both name a secret") {
			t.Errorf("%s next to its successor: %v", stem, err)
		}
		if _, err := ParseClass(class(map[string]string{stem + "Name": "old"})); err == nil || !strings.Contains(err.Error(), "must both be given") {
			t.Errorf("half of %s: %v", stem, err)
		}
	}
}

func TestResolve(t *testing.T) {
	claim := pvc(annotated("team.example/key", "blue"))
	tokens := VolumeTokens(claim, "pvc-uid-1")
	cases := []struct {
		name, template, namespace string
		want, wantNamespace       string
		err                       string
	}{
		{name: "plain", template: "s", namespace: "kube-system", want: "s", wantNamespace: "kube-system"},
		{name: "every token", template: "${pv.name}-${pvc.name}-${pvc.namespace}-${pvc.annotations['team.example/key']}", namespace: "${pvc.namespace}",
			want: "pvc-uid-1-data-ns-blue", wantNamespace: "ns"},
		{name: "the volume in the namespace", template: "s", namespace: "${pv.name}", want: "s", wantNamespace: "pvc-uid-1"},
		{name: "an absent annotation", template: "${pvc.annotations['team.example/other']}", namespace: "ns", err: `unknown token "pvc.annotations['team.example/other']"`},
		{name: "an annotation in the namespace", template: "s", namespace: "${pvc.annotations['team.example/key']}", err: "secret namespace"},
		{name: "the claim's name in the namespace", template: "s", namespace: "${pvc.name}", err: "unknown token \"pvc.name\""},
		{name: "a shell variable", template: "$HOME", namespace: "ns", err: `unknown token "HOME"`},
		{name: "an escape that is none", template: "a$$b", namespace: "ns", err: `unknown token "$"`},
		{name: "an unknown token", template: "${pod.name}", namespace: "ns", err: `unknown token "pod.name"`},
		{name: "no DNS name", template: "Not_a_name", namespace: "ns", err: `secret name "Not_a_name"`},
		{name: "no DNS label", template: "s", namespace: "a.b", err: `secret namespace "a.b"`},
		{name: "an open brace", template: "${pv.name", namespace: "ns", err: "a token is ${name}"},
		{name: "an empty token", template: "a${}", namespace: "ns", err: "a token is ${name}"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := SecretTemplate{c.template, c.namespace}.Resolve(tokens)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, %v; want an error with %s", got, err, c.err)
				}
			case err != nil:
				t.Error(err)
			case got.Name != c.want || got.Namespace != c.wantNamespace:
				t.Errorf("got %s/%s", got.Namespace, got.Name)
			}
		})
	}
}

func TestDeletionSecret_distinguishesNoneFromUnknown(t *testing.T) {
	const name, namespace = "volume.kubernetes.io/provisioner-deletion-secret-name", "volume.kubernetes.io/provisioner-deletion-secret-namespace"
	cases := []struct {
		annotations map[string]string
		want        *corev1.SecretReference
		known       bool
	}{
		{nil, nil, false},
		{map[string]string{name: "", namespace: ""}, nil, true},
		{map[string]string{name: "s", namespace: "ns"}, &corev1.SecretReference{Name: "s", Namespace: "ns"}, true},
	}
	for _, c := range cases {
		pv := &corev1.PersistentVolume{}
		pv.Annotations = c.annotations
		got, known := DeletionSecret(pv)
		if difference := cmp.Diff(c.want, got); difference != "" || known != c.known {
			t.Errorf("%v: known %v, %s", c.annotations, known, difference)
		}
	}
}
