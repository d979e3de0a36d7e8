package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/holdfast-csi/holdfast/internal/cli/gotemplate"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/quantity"
)

// The forms of -o with an expression behind them.
const (
	jsonPathForm     = "jsonpath="
	columnsForm      = "custom-columns="
	templateForm     = "go-template="
	templateFileForm = "go-template-file="
)

// parsePath reads a JSONPath template. A field that an object lacks is empty.
func parsePath(text string) (*jsonpath.JSONPath, error) {
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(text)
}

// parseField reads the path of one field, as kubectl does: .a.b, a.b, {.a.b} or {a.b}.
func parseField(text string) (*jsonpath.JSONPath, error) {
	field := strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(field, "{"); ok && strings.HasSuffix(inner, "}") {
		field = strings.TrimSuffix(inner, "}")
	}
	if field == "" || strings.ContainsAny(field, "{}") {
		return nil, fmt.Errorf("%q is not the path of a field, such as .metadata.name", text)
	}
	return parsePath("{." + strings.TrimPrefix(field, ".") + "}")
}

// fieldsOf is a value as its JSON has it, with whole numbers as such.
func fieldsOf(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var fields any
	return fields, utiljson.Unmarshal(data, &fields)
}

// writePath writes what a template finds, without a final line break, as kubectl does.
func writePath(out io.Writer, template string, value any) error {
	path, err := parsePath(template)
	if err != nil {
		return usageErrorf("-o jsonpath: %w", err)
	}
	fields, err := fieldsOf(value)
	if err != nil {
		return err
	}
	if err := path.Execute(out, fields); err != nil {
		return fmt.Errorf("-o jsonpath: %w", err)
	}
	return nil
}

// templateOf returns the Go template of a form of -o, if it is one.
func templateOf(form string) (text string, ok bool, err error) {
	if text, ok := strings.CutPrefix(form, templateForm); ok {
		return text, true, nil
	}
	name, ok := strings.CutPrefix(form, templateFileForm)
	if !ok {
		return "", false, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", false, usageErrorf("-o go-template-file: %w", err)
	}
	return string(data), true, nil
}

// writeTemplate writes what a Go template makes of a value, without a final line break,
// as kubectl does.
func writeTemplate(out io.Writer, template *gotemplate.Template, value any) error {
	fields, err := fieldsOf(value)
	if err != nil {
		return err
	}
	if err := template.Execute(out, fields); err != nil {
		return fmt.Errorf("-o go-template: %w", err)
	}
	return nil
}

// ownColumn is one of -o custom-columns.
type ownColumn struct {
	header string
	path   *jsonpath.JSONPath
}

// parseColumns reads HEADER:PATH,….
func parseColumns(text string) (columns []ownColumn, err error) {
	for word := range strings.SplitSeq(text, ",") {
		header, field, ok := strings.Cut(word, ":")
		if !ok || header == "" {
			return nil, usageErrorf("-o custom-columns: %q is not HEADER:PATH", word)
		}
		path, err := parseField(field)
		if err != nil {
			return nil, usageErrorf("-o custom-columns: %w", err)
		}
		columns = append(columns, ownColumn{header, path})
	}
	return columns, nil
}

func writeColumns(out io.Writer, text string, objects []store.Object, noHeaders bool) error {
	columns, err := parseColumns(text)
	if err != nil {
		return err
	}
	var rows [][]string
	if !noHeaders {
		var headers []string
		for _, column := range columns {
			headers = append(headers, column.header)
		}
		rows = append(rows, headers)
	}
	for _, object := range objects {
		fields, err := fieldsOf(object)
		if err != nil {
			return err
		}
		var cells []string
		for _, column := range columns {
			cell, err := valueAt(column.path, fields)
			if err != nil {
				return fmt.Errorf("-o custom-columns: %s: %w", column.header, err)
			}
			cells = append(cells, printable(orNone(cell)))
		}
		rows = append(rows, cells)
	}
	return aligned(out, "", rows)
}

// valueAt is what a path finds, with commas between several values.
func valueAt(path *jsonpath.JSONPath, fields any) (string, error) {
	found, err := path.FindResults(fields)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, results := range found {
		for _, result := range results {
			var text bytes.Buffer
			if err := path.PrintResults(&text, append(results[:0:0], result)); err != nil {
				return "", err
			}
			texts = append(texts, text.String())
		}
	}
	return strings.Join(texts, ","), nil
}

// sortBy sorts objects by a field: sizes and numbers by their value, then others as texts.
// Those without the field come first.
func sortBy(objects []store.Object, field string) error {
	path, err := parseField(field)
	if err != nil {
		return usageErrorf("--sort-by: %w", err)
	}
	keys := map[store.Object]string{}
	for _, object := range objects {
		fields, err := fieldsOf(object)
		if err != nil {
			return err
		}
		if keys[object], err = valueAt(path, fields); err != nil {
			return fmt.Errorf("--sort-by %s: %w", field, err)
		}
	}
	slices.SortStableFunc(objects, func(a, b store.Object) int { return compareValues(keys[a], keys[b]) })
	return nil
}

func compareValues(a, b string) int {
	first, errFirst := quantity.Parse(a)
	second, errSecond := quantity.Parse(b)
	switch {
	case errFirst == nil && errSecond == nil:
		return first.Cmp(second)
	case a == "" || b == "" || errFirst != nil && errSecond != nil:
		return cmp.Compare(a, b)
	case errFirst == nil:
		return -1
	}
	return 1
}
