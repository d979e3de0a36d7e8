package gotemplate

import (
	"fmt"
	"strings"
	"testing"
	"text/template"

	"pgregory.net/rapid"
)

func data() map[string]any {
	return map[string]any{
		"name": "web", "empty": "", "quoted": "a\"b'<&>=\\\n\x00é\u2028\xff", "number": int64(7), "zero": int64(0), "half": 0.5, "large": 1e30,
		"yes": true, "no": false, "null": nil, "list": []any{"a", int64(2), nil, map[string]any{"x": "y"}}, "none": []any{},
		"map":   map[string]any{"b": "two", "a": int64(1), "nil": nil, "deep": map[string]any{"k": []any{"z"}}},
		"items": []any{map[string]any{"n": "i0", "on": true}, map[string]any{"n": "i1", "on": false}, map[string]any{}},
	}
}

// oracle runs text/template.
func oracle(text string, value any) (string, error) {
	parsed, err := template.New("output").Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, value)
	return out.String(), err
}

func own(text string, value any) (string, error) {
	parsed, err := Parse("output", text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, value)
	return out.String(), err
}

// compareRuns returns a text about a difference, "" if there is none.
func compareRuns(text string) string {
	want, failed := oracle(text, data())
	got, err := own(text, data())
	switch {
	case err != nil && strings.Contains(err.Error(), "takes no arguments"):
		return "" // text/template allows it if the parent of the field is missing
	case failed != nil && strings.Contains(failed.Error(), "cannot index slice/array with type interface {}"):
		return "" // text/template takes constants alone as indices of slice
	case (err == nil) != (failed == nil):
		return fmt.Sprintf("%q: error %v; text/template: %v", text, err, failed)
	case err == nil && got != want:
		return fmt.Sprintf("%q: %q; text/template: %q", text, got, want)
	case err != nil && got != "":
		return fmt.Sprintf("%q failed, and wrote %q", text, got)
	}
	return ""
}

func TestTemplate_doesWhatTextTemplateDoes(t *testing.T) {
	for _, text := range []string{
		// Text, comments and trimming.
		"", "plain", "a {{- /* comment */ -}} b", "a{{/* c */}}b", " {{- .name -}} ", "{{\"quoted }}\"}}", "{{`raw`}}", "{{", "{{.name", "{{end}}",
		// Values.
		"{{.}}", "{{$}}", "{{.name}} {{.number}} {{.half}} {{.large}} {{.yes}} {{.empty}}", "{{.missing}}", "{{.null}}", "{{.missing.deeper.still}}",
		"{{.null.x}}", "{{.name.x}}", "{{.number.x}}", "{{.map.deep.k}}", "{{.map}}", "{{.list}}", "{{nil}}", "{{1}} {{1.5}} {{0x1F}} {{'a'}} {{1e3}} {{-3}} {{0b11}} {{1_000}}",
		"{{99999999999999999999}}", "{{true}} {{false}}", "{{.name 1}}", "{{1 | .name}}", "{{(.name)}}", "{{(.map).a}}", "{{(index .list 3).x}}", "{{.map.nil.x}}",
		"{{(.missing).x}}", "{{(.null).x}}", "{{print.x}}", "{{0xE}}", "{{nil.x}}", "{{(nil).x}}",
		// Variables.
		"{{$x := .name}}{{$x}}", "{{$x := .map}}{{$x.a}} {{$x.none}}", "{{$x := 1}}{{$x = 2}}{{$x}}", "{{$x = 2}}", "{{$x}}", "{{if $x := .name}}{{$x}}{{end}}{{$x}}",
		"{{$x := 1}}{{if true}}{{$x := 2}}{{$x}}{{end}}{{$x}}", "{{$x := 1}}{{if true}}{{$x = 2}}{{end}}{{$x}}", "{{$x := .null}}{{$x.y}}", "{{$.name}}", "{{with .map}}{{$.name}}{{.a}}{{end}}",
		// Branches.
		"{{if .name}}a{{else}}b{{end}}", "{{if .empty}}a{{else if .yes}}b{{else}}c{{end}}", "{{if .missing}}a{{else}}b{{end}}", "{{if .zero}}a{{end}}", "{{if .half}}a{{end}}",
		"{{if .none}}a{{else}}b{{end}}", "{{if .list}}a{{end}}", "{{if .null}}a{{else}}b{{end}}", "{{with .map.a}}{{.}}{{end}}", "{{with .missing}}a{{else}}{{.name}}{{end}}",
		"{{with .missing}}a{{else with .name}}{{.}}{{end}}", "{{with $x := .map}}{{$x.b}}{{end}}", "{{if nil}}{{end}}",
		// Loops.
		"{{range .list}}[{{.}}]{{end}}", "{{range $v := .list}}[{{$v}}]{{end}}", "{{range $i, $v := .list}}{{$i}}={{$v}};{{end}}", "{{range $k, $v := .map}}{{$k}}={{$v}};{{end}}",
		"{{range .map}}{{.}};{{end}}", "{{range .none}}a{{else}}b{{end}}", "{{range .missing}}a{{else}}b{{end}}", "{{range .null}}a{{else}}b{{end}}", "{{range 3}}{{.}}{{end}}",
		"{{range .number}}{{.}}{{end}}", "{{range $i := 3}}{{$i}}{{end}}", "{{range $i, $v := 3}}{{end}}", "{{range .name}}{{end}}", "{{range .half}}{{end}}", "{{range .yes}}{{end}}", "{{range 0}}a{{else}}b{{end}}",
		"{{range .items}}{{if .on}}{{break}}{{end}}{{.n}}{{end}}", "{{range .items}}{{if .on}}{{continue}}{{end}}{{.n}}{{end}}", "{{range $i, $e := .items}}{{if $i}},{{end}}{{$e.n}}{{end}}",
		"{{range .list}}{{.x}}{{end}}", "{{range $v := .list}}{{$v.x}}{{end}}", "{{range .items}}{{$.name}}{{end}}", "{{break}}", "{{$x := 0}}{{range $x = .list}}{{end}}{{$x}}",
		"{{$i := 0}}{{$x := 0}}{{range $i, $x = .list}}{{end}}{{$i}}{{$x}}", "{{range $i, $_ := .list}}{{range $j, $_ := $.list}}{{if eq $i $j}}{{continue}}{{end}}{{$i}}{{$j}} {{end}}{{end}}",
		"{{range .list}}{{$y := .}}{{end}}{{$y}}", "{{range .items}}{{with .n}}{{.}}{{break}}{{end}}{{end}}",
		// Templates.
		`{{define "t"}}<{{.}}>{{end}}{{template "t" .name}}{{template "t"}}`, `{{template "none"}}`, `{{block "b" .map}}{{.a}}{{end}}`, `{{define "t"}}{{$.a}}{{$x}}{{end}}{{$x := 1}}{{template "t" .map}}`,
		`{{define "t"}}{{if .}}({{template "t" slice . 1}}){{end}}{{end}}{{template "t" .list}}`, `{{define "t"}}{{end}}`, `{{template "output" .missing}}`, `{{define "t"}}{{.x}}{{end}}{{template "t" 1}}`,
		// Pipelines and functions.
		`{{.name | printf "%s-%d" "x" | len}}`, `{{.name | printf "%q"}}`, `{{"a" | "b"}}`, `{{printf "%v %v" .missing .null}}`, `{{printf .number}}`, `{{printf .missing}}`, `{{print .missing .null 1 "a" "b" 2 3}}`,
		`{{println .name 1}}`, `{{print}}`, `{{printf}}`, `{{printf "%d%%" .number}}`, `{{printf "%s" .list}}`, `{{nosuch .name}}`, `{{len .name}} {{len .list}} {{len .map}}`, `{{len .number}}`, `{{len .missing}}`, `{{len nil}}`, `{{len}}`, `{{len .name .name}}`,
		`{{index .list 0}} {{index .map "a"}} {{index .map "none"}} {{index .list 3 "x"}} {{index .map "deep" "k" 0}}`, `{{index .list 9}}`, `{{index .list 4}}`, `{{index .list -1}}`, `{{index .list "a"}}`, `{{index .map 1}}`, `{{index .missing "a"}}`, `{{index .null "a"}}`, `{{index .name 0}}`, `{{index .name 3}}`,
		`{{index .list .number}}`, `{{index .list .half}}`, `{{index .list nil}}`, `{{index .map nil}}`, `{{index .map .missing}}`, `{{index .number 0}}`, `{{index .list}}`, `{{index .missing}}`, `{{index}}`, `{{index .list 2 "x"}}`, `{{(index .list 2).x}}`, `{{.list | index}}`, `{{1 | index .list}}`,
		`{{slice .name 1}} {{slice .name 1 2}} {{slice .list 1 3}} {{slice .list 0 1 2}} {{slice .list}}`, `{{slice .name 2 1}}`, `{{slice .name 9}}`, `{{slice .name 0 1 1}}`, `{{slice .map 0}}`, `{{slice .missing}}`, `{{slice .list 0 2 1}}`, `{{slice .list 0 1 1 1}}`, `{{slice .number}}`,
		`{{and .name .number}} {{and .empty .number}} {{or .empty .number}} {{or .empty .zero}} {{and .missing 1}} {{or .missing 1}}`, `{{and}}`, `{{or}}`, `{{or .name .null.x}}`, `{{and .empty .null.x}}`, `{{or .empty .null.x}}`, `{{.name | and .number}}`, `{{.name | or .number}}`, `{{.missing | or .empty}}`, `{{.missing | or}}`,
		`{{not .name}} {{not .empty}} {{not .missing}} {{not .null}}`, `{{not}}`, `{{and true false}}`, `{{(or .missing .map).a}}`, `{{(or .missing .null).a}}`,
		`{{eq .name "web"}} {{eq .number 7}} {{eq .half 0.5}} {{eq .yes true}} {{eq .name "a" "web"}} {{ne .name "x"}} {{eq .missing .null}} {{eq .name .missing}} {{eq .missing nil}}`, `{{eq .name 1}}`, `{{eq .number 7.0}}`, `{{eq .list .list}}`, `{{eq .map .list}}`, `{{eq .map nil}}`, `{{eq .map .name}}`, `{{eq .yes 1}}`,
		`{{eq 1}}`, `{{eq}}`, `{{ne 1}}`, `{{ne 1 2 3}}`, `{{1 | eq 1}}`, `{{eq (index .name 0) 119}}`, `{{lt 1 2}} {{le 2 2}} {{gt .number 3}} {{ge .half 0.5}} {{lt "a" "b"}} {{lt (index .name 0) 1}}`, `{{lt .missing 1}}`, `{{lt .yes .no}}`, `{{lt 1 "a"}}`, `{{lt 1 1.0}}`, `{{ge .null .null}}`, `{{gt .list 1}}`, `{{le .map .map}}`, `{{eq 1 2 "a"}}`, `{{eq 1 1 "a"}}`,
		`{{html .quoted}}`, `{{js .quoted}}`, `{{urlquery .quoted}}`, `{{html .missing .null 1 "a"}}`, `{{.quoted | html | js}}`, `{{html}}`, `{{urlquery "a b" 1 2}}`, `{{js "\u2028\u00a0é\t"}}`,
		`{{call .name}}`, `{{call}}`, `{{print print}}`, `{{len print}}`, `{{print (print 1) (.name)}}`, `{{with $x := 1}}{{$x}}{{end}}`, `{{print nil}}`, `{{print .null}}`, `{{.name | print 1 2}}`,
	} {
		if difference := compareRuns(text); difference != "" {
			t.Error(difference)
		}
	}
}

// TestTemplate_ofAnyKind compares templates that a generator writes.
func TestTemplate_ofAnyKind(t *testing.T) {
	operands := []string{".", "$", ".name", ".number", ".zero", ".half", ".yes", ".no", ".null", ".missing", ".list", ".none", ".map", ".map.a", ".map.nil",
		".items", ".missing.x", ".n", "nil", "1", "0", "2.5", "\"a\"", "\"\"", "true", "$v", "$v.n", "(index .list 1)", "(len .name)", "(or .null .name)", "(eq .number 7)"}
	names := []string{"and", "or", "not", "len", "index", "slice", "print", "println", "eq", "ne", "lt", "le", "gt", "ge", "html", "js", "urlquery", "printf \"%v\""}
	operand := rapid.SampledFrom(operands)
	command := rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "plain") {
			return operand.Draw(t, "operand")
		}
		words := append([]string{rapid.SampledFrom(names).Draw(t, "function")}, rapid.SliceOfN(operand, 0, 3).Draw(t, "arguments")...)
		return strings.Join(words, " ")
	})
	pipeline := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(command, 1, 2).Draw(t, "commands"), " | ")
	})
	var body func(depth int) *rapid.Generator[string]
	body = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			form := "{{%s}}"
			if depth > 0 {
				form = rapid.SampledFrom([]string{"{{%s}}", "{{$v = %s}}", "{{$v := %s}}", "{{if %s}}", "{{with %s}}", "{{with $v := %s}}",
					"{{range %s}}", "{{range $v := %s}}", "{{range $i, $v := %s}}", "{{range $v = %s}}"}).Draw(t, "form")
			}
			text := fmt.Sprintf(form, pipeline.Draw(t, "pipeline"))
			if !strings.Contains(form, "if") && !strings.Contains(form, "with") && !strings.Contains(form, "range") {
				return text
			}
			text += body(depth-1).Draw(t, "inner")
			if strings.Contains(form, "range") {
				text += rapid.SampledFrom([]string{"", "{{break}}", "{{continue}}", "{{if $v}}{{break}}{{end}}-"}).Draw(t, "leave")
			}
			if rapid.Bool().Draw(t, "else") {
				text += "{{else}}" + body(depth-1).Draw(t, "other")
			}
			return text + "{{end}}"
		})
	}
	whole := rapid.SliceOfN(body(3), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		if difference := compareRuns("{{$v := .items}}" + strings.Join(whole.Draw(t, "template"), " ")); difference != "" {
			t.Fatal(difference)
		}
	})
}

func TestTemplate_hasTheFunctionsOfKubectl(t *testing.T) {
	for text, want := range map[string]string{
		`{{base64decode "YWI="}}`:                    "ab",
		`{{exists .map "deep" "k" 0}}`:               "true",
		`{{exists .map "deep" "k" 1}}`:               "false",
		`{{exists .map "nil"}}`:                      "false",
		`{{exists .missing "a"}}`:                    "false",
		`{{exists .list "a"}} {{exists .map 1}}`:     "false false",
		`{{if exists .map "a"}}{{.map.a}}{{end}}`:    "1",
		`{{range .items}}{{exists . "n"}} {{end}}`:   "true true false ",
		`{{printf "%s" ("Yg==" | base64decode)}}`:    "b",
		`{{.number}} {{printf "%05d" .number}}`:      "7 00007",
		`{{define "a"}}{{.}}{{end}}{{template "a"}}`: "<no value>",
	} {
		if got, err := own(text, data()); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestTemplate_namesTheFault(t *testing.T) {
	for text, want := range map[string]string{
		"{{.a":                      "output:1: unclosed action",
		`{{nosuch 1}}`:              `function "nosuch" not defined`,
		`{{call .name}}`:            "call: the fields of an object are no functions",
		"a\n{{.name.x}}":            `output:2:7: executing "output" at <.name.x>: cannot evaluate field x of a string`,
		`{{.null.x}}`:               "the value is null and has no field x",
		`{{base64decode "%"}}`:      "error calling base64decode: illegal base64",
		`{{base64decode .number}}`:  "a number is not a string",
		`{{index .list 9}}`:         "index out of range: 9",
		`{{1i}}`:                    "complex numbers are not supported",
		`{{eq .number 7.0}}`:        "incompatible types for comparison",
		`{{slice .list 0 1 2 3 4}}`: "wrong number of arguments for slice: 6",
		`{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`: "templates run each other more than",
	} {
		if got, err := own(text, data()); err == nil || got != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want an error with %q", text, got, err, want)
		}
	}
}
