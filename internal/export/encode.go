package export

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Encode writes objects as documents of one YAML file.
func Encode(objects []store.Object) ([]byte, error) {
	var text bytes.Buffer
	for _, object := range objects {
		document, err := encode(object)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	return text.Bytes(), nil
}

// encode writes an object as a user does: without what only servers set.
func encode(object store.Object) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return yaml.Marshal(fields)
}
