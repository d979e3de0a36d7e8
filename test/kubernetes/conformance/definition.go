package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// define writes the definition of a driver with the class of a pass, and without
// the capabilities which that lacks.
func define(p pass, from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var definition map[string]any
	if err := yaml.UnmarshalStrict(data, &definition); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	definition["StorageClass"] = map[string]any{"FromExistingClassName": p.class}
	info, _ := definition["DriverInfo"].(map[string]any)
	capabilities, _ := info["Capabilities"].(map[string]any)
	for _, name := range p.without {
		if capabilities[name] != true {
			return fmt.Errorf("%s: pass %s takes away the capability %s, which it does not claim", from, p.name, name)
		}
		capabilities[name] = false
	}
	if data, err = yaml.Marshal(definition); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
