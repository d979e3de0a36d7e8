package manifest

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
	if names := SecretsOf(objects.All[0].Object.(*corev1.Pod)); !slices.Equal(names, []string{"one", "three", "two"}) {
		t.Errorf("the Secrets are %v", names)
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
		"subPath: is not served for a secret volume":   withSecrets("volumeMounts: [{name: s, mountPath: /s, subPath: k}]", "secretName: x"),
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

// The error of a ConfigMap, and of each reference to one, names the alternative.
func TestDecode_namesTheAlternativeToAConfigMap(t *testing.T) {
	const has = "this host has no ConfigMaps"
	for want, text := range map[string]string{
		"document 1: " + has + "; make it a Secret with the values in stringData":                                                                           "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b}\n",
		"envFrom[0].configMapRef: is not supported on one machine: " + has + "; put the values into a Secret, and refer to it with `secretRef`":             withSecrets("envFrom: [{configMapRef: {name: x}}]", "secretName: x"),
		"env[0].valueFrom.configMapKeyRef: is not supported on one machine: " + has + "; put the values into a Secret, and refer to it with `secretKeyRef`": withSecrets("env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: k}}}]", "secretName: x"),
		"spec.volumes[0].configMap: is not supported on one machine: " + has + "; put the values into a Secret, and refer to it with `secret`":              strings.Replace(withSecrets("", "secretName: x"), "secret: {secretName: x}", "configMap: {name: x}", 1),
	} {
		if _, err := decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
