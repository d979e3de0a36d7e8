package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// schema is as much of a JSON schema as names values.
type schema struct {
	Properties           map[string]schema `json:"properties"`
	Items                *schema           `json:"items"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
}

// schemaNames are the paths of all values that the schema knows.
func schemaNames(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(directory, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var top schema
	if err := json.Unmarshal(data, &top); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	top.collect(t, "", names)
	return names
}

func (s schema) collect(t *testing.T, prefix string, names map[string]bool) {
	t.Helper()
	if len(s.Properties) > 0 && string(s.AdditionalProperties) != "false" {
		t.Errorf("%q accepts unknown values", prefix)
	}
	for name, inner := range s.Properties {
		path := name
		if prefix != "" {
			path = prefix + "." + name
		}
		names[path] = true
		inner.collect(t, path, names)
	}
	if s.Items != nil {
		s.Items.collect(t, prefix, names)
	}
}
