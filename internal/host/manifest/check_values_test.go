package manifest

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
)

// withSecrets is a pod that refers to Secrets in every way.
func withSecrets(container, volume string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n" +
		"  containers: [{name: main, command: [cat], " + container + "}]\n  volumes: [{name: s, secret: {" + volume + "}}]\n"
}

func TestDecode_takesSecretsOfContainers(t *testing.T) {
	objects, err := decode(withSecrets("env: [{name: A, valueFrom: {secretKeyRef: {name: one, key: k}}}, {name: B, valueFrom: {secretKeyRef: {name: any, key: k, optional: true}}}], "+
		"envFrom: [{prefix: P_, secretRef: {name: two}}], volumeMounts: [{name: s, mountPath: /s}]",
		"secretName: three, defaultMode: 256, items: [{key: k, path: a/b, mode: 288}]"))
	if err != nil {
		t.Fatal(err)
	}
	want := []podvalues.Reference{{Kind: podvalues.Secret, Name: "any", Optional: true}, {Kind: podvalues.Secret, Name: "one"},
		{Kind: podvalues.Secret, Name: "three"}, {Kind: podvalues.Secret, Name: "two"}}
	if got := podvalues.Of(objects.All[0].Object.(*corev1.Pod)); !slices.Equal(got, want) {
		t.Errorf("it refers to %v", got)
	}
}

func TestDecode_refusesWrongReferencesToSecrets(t *testing.T) {
	const key, mount = "env: [{name: A, valueFrom: {secretKeyRef: {name: one, key: k}}}]", "volumeMounts: [{name: s, mountPath: /s}]"
	for want, text := range map[string]string{
		"valueFrom.secretKeyRef.key":                   withSecrets(`env: [{name: A, valueFrom: {secretKeyRef: {name: one, key: "a/b"}}}]`, "secretName: x"),
		"valueFrom.secretKeyRef.name":                  withSecrets("env: [{name: A, valueFrom: {secretKeyRef: {name: A_B, key: k}}}]", "secretName: x"),
		"envFrom[0]: names no source":                  withSecrets("envFrom: [{prefix: a}]", "secretName: x"),
		`envFrom[0].prefix: "a=" has a =`:              withSecrets("envFrom: [{prefix: a=, secretRef: {name: x}}]", "secretName: x"),
		"secret.secretName: is missing":                withSecrets(key, "optional: true"),
		"secret.defaultMode: 512 is not between":       withSecrets(key, "secretName: x, defaultMode: 512"),
		`items[0].path: "../x" is not a path below`:    withSecrets(key, "secretName: x, items: [{key: k, path: ../x}]"),
		`items[0].path: "a/../b" is not a path below`:  withSecrets(key, "secretName: x, items: [{key: k, path: a/../b}]"),
		`items[0].path: "/x" is not a path below`:      withSecrets(key, "secretName: x, items: [{key: k, path: /x}]"),
		`items[1].path: "a" is there twice`:            withSecrets(key, "secretName: x, items: [{key: k, path: a}, {key: l, path: a}]"),
		`"a" is a file, and "a/b" is below it`:         withSecrets(key, "secretName: x, items: [{key: k, path: a}, {key: l, path: a/b}]"),
		"subPath: \"../k\" leads out of the volume":    withSecrets("volumeMounts: [{name: s, mountPath: /s, subPath: ../k}]", "secretName: x"),
		"volume \"s\" is a filesystem; use volumeMoun": withSecrets("volumeDevices: [{name: s, devicePath: /dev/s}]", "secretName: x"),
	} {
		if _, err := decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := decode(withSecrets(mount, "secretName: x")); err != nil {
		t.Error(err)
	}
}

// withConfigMaps is a pod that refers to ConfigMaps in every way, and has a projected volume.
func withConfigMaps(container, projected string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n" +
		"  containers: [{name: main, command: [cat], " + container + "}]\n  volumes: [{name: c, configMap: {name: three, defaultMode: 256, items: [{key: k, path: a/b, mode: 288}]}}, {name: p, projected: {" + projected + "}}]\n"
}

func TestDecode_takesConfigMapsOfContainers(t *testing.T) {
	objects, err := decode(withConfigMaps("env: [{name: A, valueFrom: {configMapKeyRef: {name: one, key: k}}}, {name: B, valueFrom: {configMapKeyRef: {name: one, key: l, optional: true}}}], "+
		"envFrom: [{configMapRef: {name: two}}], volumeMounts: [{name: c, mountPath: /s, subPath: a}]",
		"defaultMode: 256, sources: [{secret: {name: four, items: [{key: k, path: a}]}}, {configMap: {name: four, optional: true}}]"))
	if err != nil {
		t.Fatal(err)
	}
	want := []podvalues.Reference{{Kind: podvalues.ConfigMap, Name: "four", Optional: true}, {Kind: podvalues.ConfigMap, Name: "one"},
		{Kind: podvalues.ConfigMap, Name: "three"}, {Kind: podvalues.ConfigMap, Name: "two"}, {Kind: podvalues.Secret, Name: "four"}}
	if got := podvalues.Of(objects.All[0].Object.(*corev1.Pod)); !slices.Equal(got, want) {
		t.Errorf("it refers to %v", got)
	}
}

func TestDecode_refusesWrongReferencesToConfigMaps(t *testing.T) {
	for want, text := range map[string]string{
		"valueFrom: names more than one source":                         withConfigMaps("env: [{name: A, valueFrom: {configMapKeyRef: {name: one, key: k}, secretKeyRef: {name: one, key: k}}}]", ""),
		"envFrom[0]: names more than one source":                        withConfigMaps("envFrom: [{configMapRef: {name: one}, secretRef: {name: one}}]", ""),
		"projected.sources[0].configMap.name: is missing":               withConfigMaps("env: []", "sources: [{configMap: {optional: true}}]"),
		`projected.sources[1].secret.items[0].path: "a" is there twice`: withConfigMaps("env: []", "sources: [{configMap: {name: x, items: [{key: k, path: a}]}}, {secret: {name: x, items: [{key: k, path: a}]}}]"),
		"projected.sources[0].downwardAPI: is not supported":            withConfigMaps("env: []", "sources: [{downwardAPI: {items: [{path: a}]}}]"),
		"projected.defaultMode: 512 is not between":                     withConfigMaps("env: []", "defaultMode: 512"),
	} {
		if _, err := decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
