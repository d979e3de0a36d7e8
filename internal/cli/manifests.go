package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// expandDirectories replaces each directory by its manifests.
func expandDirectories(names []string) ([]string, error) {
	var expanded []string
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || err != nil || !info.IsDir() {
			expanded = append(expanded, name) // reading it reports the error
			continue
		}
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, err
		}
		before := len(expanded)
		for _, entry := range entries {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) && !entry.IsDir() {
				expanded = append(expanded, filepath.Join(name, entry.Name()))
			}
		}
		if len(expanded) == before {
			return nil, fmt.Errorf("%s has no file that ends in .yaml, .yml or .json", name)
		}
	}
	return expanded, nil
}

// named is an object that a manifest names.
type named struct {
	kind            store.Kind
	namespace, name string
}

func (n named) key() string {
	if n.kind.Namespaced {
		return store.Key(n.namespace, n.name)
	}
	return n.name
}

// namesIn lists the objects of manifests without a look at the rest of them:
// what cannot be applied can be deleted.
func namesIn(files []manifest.File, namespace string) ([]named, error) {
	var all []named
	for _, file := range files {
		reader := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(file.Data)))
		for number := 1; ; number++ {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			var found []named
			if err == nil {
				found, err = namesOf(document, namespace)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: document %d: %w", file.Name, number, err)
			}
			all = append(all, found...)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the manifest has no object")
	}
	return all, nil
}

func namesOf(document []byte, namespace string) ([]named, error) {
	if err := manifest.CheckEnd(document); err != nil {
		return nil, err
	}
	var object struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(document, &object); err != nil {
		return nil, err
	}
	switch {
	case object.Kind == "" && object.APIVersion == "":
		return nil, nil // comments only
	case object.Kind == "List":
		var all []named
		for _, item := range object.Items {
			found, err := namesOf(item, namespace)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	case object.Metadata.Name == "":
		return nil, fmt.Errorf("%s: metadata.name is missing", object.Kind)
	}
	for _, kind := range store.Kinds() {
		if kind.GroupVersionKind == object.GroupVersionKind() {
			found := named{kind: kind, namespace: namespace, name: object.Metadata.Name}
			if object.Metadata.Namespace != "" {
				found.namespace = object.Metadata.Namespace
			}
			return []named{found}, nil
		}
	}
	return nil, fmt.Errorf("kind %q of apiVersion %q is none that a host has", object.Kind, object.APIVersion)
}
