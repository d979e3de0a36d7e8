package tags

import (
	"strings"
	"testing"
	"text/template"
)

// The result is that of text/template, for the functions that it has.
func TestTemplates_equalTextTemplate(t *testing.T) {
	fields := map[string]string{"PVCName": "data-0", "PVCNamespace": "shop", "PVName": ""}
	for _, text := range []string{
		`{{ .PVCName }}`, `a {{- .PVCName -}} b`, `{{ "x" }}{{ 3 }}{{ 2.5 }}{{ true }}`, `{{/* nothing */}}`,
		`{{ if .PVName }}yes{{ else if eq .PVCName "a" "data-0" }}second{{ else }}no{{ end }}`,
		`{{ with .PVCName }}{{ . }}{{ $.PVCNamespace }}{{ else }}none{{ end }}`, `{{ with .PVName }}{{ . }}{{ else }}none{{ end }}`,
		`{{ $x := .PVCName }}{{ if true }}{{ $x = "changed" }}{{ $y := 1 }}{{ $x }}{{ $y }}{{ end }}{{ $x }}`,
		`{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}`,
		`{{ and .PVCName .PVName "z" }}|{{ or .PVName .PVCName }}|{{ not .PVName }}`, `{{ "z" | and true }}{{ "" | or false }}`,
		`{{ len .PVCName }}{{ slice .PVCName 1 3 }}{{ slice .PVCName 2 }}{{ slice .PVCName }}`,
		`{{ print .PVCName 1 2 "x" }}{{ println "y" }}{{ printf "%q %5d" .PVCName 7 }}`,
		`{{ lt 1 2 }}{{ le 2 2 }}{{ gt "b" "a" }}{{ ge 1.5 2.5 }}{{ ne .PVCName "x" }}{{ eq true false }}`,
		`{{ (printf "%s-%s" .PVCName .PVCNamespace) | len }}`, `{{ if and (eq .PVCName "data-0") (not (eq .PVCNamespace "x")) }}both{{ end }}`,
	} {
		var want strings.Builder
		if err := template.Must(template.New("").Parse(text)).Execute(&want, fields); err != nil {
			t.Fatal(err)
		}
		v, err := compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := v.execute(fields); err != nil || got != want.String() {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want.String())
		}
	}
}

func TestTemplates_refuseWhatCannotBeComputed(t *testing.T) {
	for _, text := range []string{
		`{{ eq .PVCName 1 }}`, `{{ len 3 }}`, `{{ "a" "b" }}`, `{{ 1 | 2 }}`, `{{ slice .PVCName 4 2 }}`, `{{ and }}`, `{{ not }}`,
		`{{ toUpper }}`, `{{ toUpper "a" "b" }}`, `{{ . }}`, `{{ with .PVCName }}{{ .PVName }}{{ end }}`, `{{ 'a' | toUpper }}`, `{{ nil }}`,
	} {
		v, err := compile(text)
		if err == nil {
			_, err = v.execute(map[string]string{"PVCName": "data-0", "PVName": "pvc-1"})
		}
		if err == nil {
			t.Errorf("%s was evaluated", text)
		}
	}
}
