package manifest

import (
	"strings"
	"testing"
)

// written is a wrong text of a user, and its error.
type written struct{ name, text, want string }

func saysOfEach(t *testing.T, cases []written) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode([]File{{Name: "m.yaml", Data: []byte(c.text)}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDecode_namesFieldsOfTheWrongType(t *testing.T) {
	pod := `document 4: Pod "ns/p": `
	saysOfEach(t, []written{
		{"a number as name", changed(t, "name: p,", "name: 5,"), `document 4: Pod "ns/": metadata.name: is a number, where a text is wanted: put it in quotes`},
		{"a word that is a bool", changed(t, "namespace: ns", "namespace: ns, labels: {on: yes}"), pod + "metadata.labels.true: is true or false, where a text is wanted: put it in quotes"},
		{"metadata of nothing", changed(t, "metadata: {name: data}", "metadata: data"), `document 3: PersistentVolumeClaim "default/": metadata: is a text, where fields are wanted`},
		{"labels in a list", changed(t, "namespace: ns", "namespace: ns, labels: [a]"), pod + "metadata.labels: is a list, where keys with values are wanted"},
		{"a bool in quotes", changed(t, "restartPolicy: Never", `hostNetwork: "true"`), pod + `spec.hostNetwork: "true" is a text, where true or false is wanted: write it without quotes`},
		{"a bool that is a number", changed(t, "restartPolicy: Never", "hostNetwork: 1"), pod + "spec.hostNetwork: is a number, where true or false is wanted"},
		{"a number in quotes", changed(t, "restartPolicy: Never", `terminationGracePeriodSeconds: "30"`), pod + `spec.terminationGracePeriodSeconds: "30" is a text, where a whole number is wanted: write it without quotes`},
		{"a number with a unit", changed(t, "restartPolicy: Never", "terminationGracePeriodSeconds: 30s"), pod + `spec.terminationGracePeriodSeconds: "30s" is a text, where a whole number is wanted`},
		{"a broken number", changed(t, "restartPolicy: Never", "terminationGracePeriodSeconds: 1.5"), pod + "spec.terminationGracePeriodSeconds: 1.5 is not a whole number"},
		{"a list of texts", changed(t, "command: [cat]", "command: [sleep, 5]"), pod + "spec.containers[0].command[1]: is a number, where a text is wanted: put it in quotes"},
		{"a map instead of a list", changed(t, "[{name: data, mountPath: /data}]", "{name: data}"), pod + "spec.containers[0].volumeMounts: is a map, where a list is wanted"},
		{"a size of nothing", changed(t, "storage: 1Gi", `storage: ""`), `spec.resources.requests.storage: "" is not a quantity`},
		{"a size in words", changed(t, "storage: 1Gi", "storage: {much: 1}"), "spec.resources.requests.storage: is a map, where a quantity is wanted, such as 512Mi or 10Gi"},
		{"a time", changed(t, "namespace: ns", "namespace: ns, creationTimestamp: today"), pod + "metadata.creationTimestamp: is not a time"},
		{"everything at once", changed(t, "restartPolicy: Never", "hostNetwork: 1\n  restartPolicies: x"), "where true or false is wanted; unknown field"},
	})
}

func TestDecode_acceptsTheAPIsForms(t *testing.T) {
	for _, size := range []string{"1073741824", `"1073741824"`, "1e9", `" 1Gi "`, "1.5Gi", "1Gi"} {
		if _, err := Decode([]File{{Name: "m.yaml", Data: []byte(changed(t, "storage: 1Gi", "storage: "+size))}}); err != nil {
			t.Errorf("size %s: %v", size, err)
		}
	}
	text := changed(t, "image: busybox", "image: busybox, ports: [], livenessProbe: {httpGet: {port: http}}, startupProbe: {httpGet: {port: 80}}, env: null")
	text = strings.Replace(text, "namespace: ns", `namespace: ns, creationTimestamp: "2026-01-02T03:04:05Z", labels: null`, 1)
	if _, err := Decode([]File{{Name: "m.yaml", Data: []byte(text + "...\n# the end\n")}}); err != nil {
		t.Error(err)
	}
}

func TestDecode_quotesNothingOfASecret(t *testing.T) {
	const value = "hunter2"
	for _, line := range []string{
		"data: {key: hunter2!}", "data: {key: [hunter2]}", "data: hunter2", "stringData: {key: {hunter2: 1}}", "stringData: [hunter2]",
		"stringData: {key: *hunter2}", "stringData: hunter2", "type: [hunter2]",
	} {
		text := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n" + line + "\n"
		_, err := Decode([]File{{Name: "m.yaml", Data: []byte(text)}})
		if err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", line, err)
		}
	}
	saysOfEach(t, []written{
		{"no base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {key: a b}\n", `Secret "default/s": data.key: is not base64; texts as they are belong into a Secret's stringData, or a ConfigMap's data`},
		{"a number", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: 31337}\n", `Secret "default/s": stringData.key: is a number, where a text is wanted: put it in quotes`},
		{"an alias", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: *hunter2}\n", "put a text that begins with * in quotes"},
	})
}
