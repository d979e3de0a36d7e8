package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// toYAML encodes a value of JSON types.
func toYAML(object any) ([]byte, error) { return yaml.Marshal(object) }

// writeConfig writes a configuration file and the directories above it.
func writeConfig(path string, object any) error {
	data, err := toYAML(object)
	if err != nil {
		return fmt.Errorf("cluster: %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
