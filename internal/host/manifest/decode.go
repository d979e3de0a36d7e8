// Package manifest reads the Kubernetes YAML that the host is given. It is
// strict: an unknown kind, an unknown field, a field that the host cannot honour
// and two documents of one name are errors that name file, document and field.
// What has no meaning on one machine, such as an image, is accepted and
// reported. A manifest that passes is one that a cluster accepts unchanged.
package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// DefaultNamespace is where objects are that name no namespace.
const DefaultNamespace = "default"

// File is one manifest as given.
type File struct {
	Name string
	Data []byte
}

// Objects is everything in the files of one command, in the order given.
type Objects struct {
	Classes []*storagev1.StorageClass
	Drivers []*storagev1.CSIDriver
	Claims  []*corev1.PersistentVolumeClaim
	Pods    []*corev1.Pod
	// Unused are the fields that have no meaning here, one sentence per object.
	Unused []string
}

// document is one YAML document of a file.
type document struct {
	file   string
	number int // from 1
	data   []byte
}

func (d document) errorf(format string, arguments ...any) error {
	return fmt.Errorf("%s: document %d: %w", d.file, d.number, fmt.Errorf(format, arguments...))
}

// Decode reads all files. All that is wrong in them is reported at once.
func Decode(files []File) (*Objects, error) {
	objects := &Objects{}
	var problems []error
	seen := map[string]document{}
	for _, file := range files {
		documents, err := split(file)
		if err != nil {
			problems = append(problems, err)
		}
		for _, doc := range documents {
			if err := objects.add(doc, seen); err != nil {
				problems = append(problems, err)
			}
		}
	}
	if len(problems) == 0 && len(seen) == 0 {
		problems = append(problems, errors.New("the manifest has no document"))
	}
	return objects, errors.Join(problems...)
}

// split cuts a file at its "---" lines. Documents that are empty, or comments
// only, count but have no content.
func split(file File) ([]document, error) {
	var documents []document
	reader := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(file.Data)))
	for number := 1; ; number++ {
		data, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return documents, fmt.Errorf("%s: document %d: %w", file.Name, number, err)
		}
		doc := document{file: file.Name, number: number}
		if doc.data, err = yaml.YAMLToJSONStrict(data); err != nil {
			return documents, doc.errorf("%s", strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
		}
		if !bytes.Equal(doc.data, []byte("null")) {
			documents = append(documents, doc)
		}
	}
}

// add decodes one document into the list of its kind.
func (o *Objects) add(doc document, seen map[string]document) error {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(doc.data, &meta); err != nil {
		return doc.errorf("is no Kubernetes object: %w", err)
	}
	switch kind := meta.APIVersion + " " + meta.Kind; kind {
	case "storage.k8s.io/v1 StorageClass":
		return addAs(o, doc, seen, &o.Classes, checkClass)
	case "storage.k8s.io/v1 CSIDriver":
		return addAs(o, doc, seen, &o.Drivers, checkDriver)
	case "v1 PersistentVolumeClaim":
		return addAs(o, doc, seen, &o.Claims, checkClaim)
	case "v1 Pod":
		return addAs(o, doc, seen, &o.Pods, checkPod)
	}
	return doc.errorf("kind %q of apiVersion %q is not supported; supported are v1 Pod and PersistentVolumeClaim, storage.k8s.io/v1 StorageClass and CSIDriver",
		meta.Kind, meta.APIVersion)
}

// object is a pointer to a Kubernetes type.
type object[T any] interface {
	*T
	metav1.Object
}

func addAs[T any, P object[T]](o *Objects, doc document, seen map[string]document, list *[]*T, check func(*T) []string) error {
	value := new(T)
	strict, err := kjson.UnmarshalStrict(doc.data, value)
	if err != nil {
		return doc.errorf("%w", err)
	}
	if len(strict) > 0 {
		return doc.errorf("%w", errors.Join(strict...))
	}
	kind, namespaced := kindOf(value)
	meta := P(value)
	if namespaced && meta.GetNamespace() == "" {
		meta.SetNamespace(DefaultNamespace)
	}
	name := fmt.Sprintf("%s %q", kind, describe(meta))
	unused, problems := checkFields(kind, doc.data)
	problems = append(problems, checkMeta(meta, namespaced)...)
	problems = append(problems, check(value)...)
	if first, twice := seen[name]; twice {
		problems = append(problems, fmt.Sprintf("is there twice: the first is %s, document %d", first.file, first.number))
	}
	seen[name] = doc
	if len(problems) > 0 {
		return doc.errorf("%s: %s", name, strings.Join(problems, "; "))
	}
	if len(unused) > 0 {
		o.Unused = append(o.Unused, name+": "+strings.Join(unused, ", "))
	}
	*list = append(*list, value)
	return nil
}

func describe(meta metav1.Object) string {
	if meta.GetNamespace() == "" {
		return meta.GetName()
	}
	return meta.GetNamespace() + "/" + meta.GetName()
}

func kindOf(value any) (kind string, namespaced bool) {
	switch value.(type) {
	case *storagev1.StorageClass:
		return "StorageClass", false
	case *storagev1.CSIDriver:
		return "CSIDriver", false
	case *corev1.PersistentVolumeClaim:
		return "PersistentVolumeClaim", true
	}
	return "Pod", true
}

// IsDefault tells whether a class serves claims that name none.
func IsDefault(class *storagev1.StorageClass) bool {
	return class.Annotations[DefaultClassAnnotation] == "true"
}

// DefaultClassAnnotation marks the default StorageClass.
const DefaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"
