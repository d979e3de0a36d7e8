// Package manifest reads the Kubernetes YAML that the host is given. It is
// strict: an unknown kind, an unknown field, a field that the host cannot honour
// and two documents of one name are errors that name file, document and field.
// What has no meaning on one machine, such as an image, is accepted and
// reported. A manifest that passes is one that a cluster accepts unchanged.
package manifest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// DefaultNamespace is where objects are that name no namespace.
const DefaultNamespace = "default"

// File is one manifest as given.
type File struct {
	Name string
	Data []byte
}

// Object is one object of a manifest, checked, with the API's defaults.
type Object struct {
	Kind store.Kind
	store.Object
	// Key is the object's in the store.
	Key string
	// Where says which document of which file it is.
	Where string
}

// Name is the object for messages: its kind and key.
func (o Object) Name() string { return fmt.Sprintf("%s %q", o.Kind.Kind, o.Key) }

// Objects is everything in the files of one command, in the order given.
type Objects struct {
	All []Object
	// Claims and Pods are those of All.
	Claims []*corev1.PersistentVolumeClaim
	Pods   []*corev1.Pod
	// Unused are the fields that have no meaning here, one sentence per object.
	Unused []string
	// restarts are the fields that only a run has no use for.
	restarts []string
}

// document is one YAML document of a file, or one item of a List in it.
type document struct {
	where string
	data  []byte
}

func (d document) errorf(format string, arguments ...any) error {
	return fmt.Errorf("%s: %w", d.where, fmt.Errorf(format, arguments...))
}

// Decode reads all files. All that is wrong in them is reported at once.
func Decode(files []File) (*Objects, error) {
	objects := &Objects{}
	var problems []error
	seen := map[string]document{}
	count := 0
	for _, file := range files {
		documents, err := split(file)
		if err != nil {
			problems = append(problems, err)
		}
		count += len(documents)
		for _, doc := range documents {
			problems = append(problems, objects.add(doc, seen)...)
		}
	}
	if len(problems) == 0 && count == 0 {
		problems = append(problems, errors.New("the manifest has no document"))
	}
	return objects, errors.Join(problems...)
}

// split cuts a file at its "---" lines. Documents that are empty, or comments
// only, count but have no content.
func split(file File) ([]document, error) {
	var documents []document
	name := file.Name
	if name == "-" {
		name = "standard input"
	}
	reader := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(file.Data)))
	for number := 1; ; number++ {
		data, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		doc := document{where: fmt.Sprintf("%s: document %d", name, number)}
		if err != nil {
			return documents, doc.errorf("%w", err)
		}
		if doc.data, err = yaml.YAMLToJSONStrict(data); err != nil {
			return documents, doc.errorf("%s", syntaxError(err))
		}
		if err := CheckEnd(data); err != nil {
			return documents, doc.errorf("%w", err)
		}
		if !bytes.Equal(doc.data, []byte("null")) {
			documents = append(documents, doc)
		}
	}
}

// CheckEnd refuses a document of YAML behind whose end there is more, which a
// decoder does not read. (The end is "...", a key further left than the first, or
// the bracket that closes the first.)
func CheckEnd(document []byte) error {
	decoder := goyaml.NewDecoder(bytes.NewReader(document))
	var nothing struct{}
	_ = decoder.Decode(&nothing) // only the rest is checked
	if err := decoder.Decode(&nothing); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end: a line with --- has to part two documents, and all keys at the top of one begin in the same column")
	}
	return nil
}

// unknownAnchor is the parser's error for a text like *word without quotes. The word
// may be a password.
var unknownAnchor = regexp.MustCompile(`unknown anchor '.*' referenced`)

func syntaxError(err error) string {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	return unknownAnchor.ReplaceAllString(text, "an alias (*NAME) of something that has no anchor (&NAME): put a text that begins with * in quotes")
}

// add decodes one document, or every item of one that is a List.
func (o *Objects) add(doc document, seen map[string]document) []error {
	var meta metav1.TypeMeta
	if problems := checkType(doc.data); len(problems) > 0 {
		return []error{doc.errorf("is not a Kubernetes object: %s", strings.Join(problems, "; "))}
	}
	if _, err := kjson.UnmarshalStrict(doc.data, &meta, kjson.DisallowDuplicateFields); err != nil {
		return []error{doc.errorf("is not a Kubernetes object: %s", withoutValues(err))}
	}
	if meta.APIVersion == "v1" && meta.Kind == "List" {
		return o.addList(doc, seen)
	}
	kind, err := findKind(meta)
	if err != nil {
		return []error{doc.errorf("%w", err)}
	}
	if err := o.addAs(kind, doc, seen); err != nil {
		return []error{err}
	}
	return nil
}

// addList takes the List that kubectl prints for several objects.
func (o *Objects) addList(doc document, seen map[string]document) (problems []error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if problems := checkShape(&list, doc.data); len(problems) > 0 {
		return []error{doc.errorf("List: %s", strings.Join(problems, "; "))}
	}
	strict, err := kjson.UnmarshalStrict(doc.data, &list)
	if err != nil {
		return []error{doc.errorf("%s", withoutValues(err))}
	}
	if len(strict) > 0 {
		return []error{doc.errorf("List: %w", errors.Join(strict...))}
	}
	for i, item := range list.Items {
		inner := document{where: fmt.Sprintf("%s, items[%d]", doc.where, i), data: item}
		var meta metav1.TypeMeta
		if err := json.Unmarshal(item, &meta); err == nil && meta.Kind == "List" {
			problems = append(problems, inner.errorf("is a List in a List"))
			continue
		}
		problems = append(problems, o.add(inner, seen)...)
	}
	return problems
}

func (o *Objects) addAs(kind store.Kind, doc document, seen map[string]document) error {
	object := kind.New()
	if problems := checkShape(object, doc.data); len(problems) > 0 {
		return doc.errorf("%s: %s", nameIn(kind, doc.data), strings.Join(problems, "; "))
	}
	strict, err := kjson.UnmarshalStrict(doc.data, object)
	if err != nil {
		return doc.errorf("%s: %s", nameIn(kind, doc.data), withoutValues(err))
	}
	if len(strict) > 0 {
		return doc.errorf("%s: %w", nameIn(kind, doc.data), errors.Join(strict...))
	}
	if kind.Namespaced && object.GetNamespace() == "" {
		object.SetNamespace(DefaultNamespace)
	}
	restarts := restartPolicy(object)
	SetDefaults(object)
	given := Object{Kind: kind, Object: object, Key: store.KeyOf(object), Where: doc.where}
	unused, problems := checkFields(kind.Kind, doc.data)
	problems = append(problems, checkMeta(object, kind)...)
	problems = append(problems, check(object)...)
	if first, twice := seen[given.Name()]; twice {
		problems = append(problems, fmt.Sprintf("is there twice: the first is %s",
			strings.Replace(first.where, ": document", ", document", 1)))
	}
	seen[given.Name()] = doc
	if len(problems) > 0 {
		return doc.errorf("%s: %s", given.Name(), strings.Join(problems, "; "))
	}
	if len(unused) > 0 {
		o.Unused = append(o.Unused, given.Name()+": "+strings.Join(unused, ", "))
	}
	if restarts != "" {
		o.restarts = append(o.restarts, given.Name()+": "+restarts)
	}
	o.sort(given)
	return nil
}

// nameIn is the name of an object that does not decode, as Object.Name has it.
func nameIn(kind store.Kind, data []byte) string {
	var given struct {
		Metadata struct{ Name, Namespace any }
	}
	_ = json.Unmarshal(data, &given) // a value that is not a name is left out
	key, _ := given.Metadata.Name.(string)
	if kind.Namespaced {
		namespace, _ := given.Metadata.Namespace.(string)
		key = store.Key(cmp.Or(namespace, DefaultNamespace), key)
	}
	return Object{Kind: kind, Key: key}.Name()
}

func (o *Objects) sort(given Object) {
	o.All = append(o.All, given)
	switch object := given.Object.(type) {
	case *corev1.PersistentVolumeClaim:
		o.Claims = append(o.Claims, object)
	case *corev1.Pod:
		o.Pods = append(o.Pods, object)
	}
}

// withoutValues is the text of a decoding error that may quote a value, which
// may be a secret's.
func withoutValues(err error) string {
	text := err.Error()
	const number = "cannot unmarshal number "
	start := strings.Index(text, number)
	if start < 0 {
		return text
	}
	start += len(number)
	end := strings.Index(text[start:], "into ")
	if end < 0 {
		return "a number of the wrong type"
	}
	return text[:start] + text[start+end:]
}

// IsDefault reports whether a class serves claims that name none.
func IsDefault(class *storagev1.StorageClass) bool {
	return class.Annotations[DefaultClassAnnotation] == "true"
}

// Annotations that are "true" on a default class.
const (
	DefaultClassAnnotation         = "storageclass.kubernetes.io/is-default-class"
	DefaultSnapshotClassAnnotation = "snapshot.storage.kubernetes.io/is-default-class"
)
