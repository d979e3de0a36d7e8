package bugreport

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/redact"
)

// Text hides what looks like a secret in a text: the user part of URLs, and the values of
// names such as password= or --api-token.
func Text(data []byte) []byte {
	hidden := []byte(`${1}` + redact.Hidden)
	sensitive := "(?:" + strings.ReplaceAll(strings.Join(redact.SecretNames(), "|"), "-", "[-_.]?") + ")"
	for _, pattern := range []string{
		`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'@]+@`,
		`(?i)([-_.a-z0-9]*` + sensitive + `\\?["']?\s*[:=]\s*(?:bearer\s+)?\\?["'])[^"'\\]*`,
		`(?i)([-_.a-z0-9]*` + sensitive + `[:=](?:bearer\s+)?)[^\s"',;&)\\]+`,
		`(?i)(--[-_.a-z0-9]*` + sensitive + `\s+)[^\s"',;&-][^\s"',;&]*`,
	} {
		replacement := hidden
		if strings.Contains(pattern, "@") {
			replacement = append(hidden[:len(hidden):len(hidden)], '@')
		}
		data = regexp.MustCompile(pattern).ReplaceAll(data, replacement)
	}
	return data
}

// Objects redacts a list of objects as JSON, which the API gives. It hides the values of
// Secrets and ConfigMaps, of variables, commands, and of what inline volumes are given,
// and of all other attributes those with a name of a secret.
func Objects(data []byte) ([]byte, error) {
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("the host's answer: %w", err)
	}
	hide("", tree)
	return json.MarshalIndent(tree, "", "  ")
}

// hide hides values in place; field is the name of the tree.
func hide(field string, tree any) {
	switch tree := tree.(type) {
	case []any:
		for i, element := range tree {
			if _, text := element.(string); text && isHidden(field) {
				tree[i] = redact.Hidden
			}
			hide(field, element)
		}
	case map[string]any:
		for name, value := range tree {
			hideField(field, name, value, tree)
		}
	}
}

func hideField(field, name string, value any, in map[string]any) {
	text, isText := value.(string)
	switch {
	case isText && (isHidden(field) || isOfVariable(field, name) || redact.IsSecretName(name)):
		in[name] = redact.Hidden
	case name == "kubectl.kubernetes.io/last-applied-configuration":
		delete(in, name)
	case isText && strings.HasPrefix(text, "{"): // an object in a text, such as an annotation's
		in[name] = redact.Hidden
	default:
		hide(name, value)
	}
}

// isHidden reports whether all texts in a field are hidden.
func isHidden(field string) bool {
	switch field {
	case "data", "stringData", "binaryData", "command", "args", "volumeAttributes":
		return true
	}
	return false
}

func isOfVariable(field, name string) bool { return field == "env" && name == "value" }

// encode writes a value as redacted JSON.
func encode(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return Objects(data)
}
