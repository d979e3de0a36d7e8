package workload

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
)

// Values finds the values of a Secret or a ConfigMap (its kind, podvalues.Secret or
// podvalues.ConfigMap) of the pod's namespace; nil if there is no such object. They go to the
// container by a pipe, and into no file of this machine.
type Values func(kind, name string) (map[string][]byte, error)

// MissingError is of a Secret or ConfigMap, or of a key of one, that a pod refers to.
type MissingError struct {
	Kind, Namespace, Name string
	// Key is empty if the whole object is missing.
	Key string
}

func (e *MissingError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s %s does not exist in namespace %s: make it with 'holdfast apply'", e.Kind, e.Name, e.Namespace)
	}
	return fmt.Sprintf("%s %s in namespace %s has no key %q: add it, or correct the reference", e.Kind, e.Name,
		e.Namespace, e.Key)
}

// The modes of the files of a volume of values.
const (
	defaultFileMode = 0o644
	// groupReads are the bits that the kubelet adds for the fsGroup of a read-only volume.
	groupReads = 0o440
)

// of are the values that a reference names. A missing optional object has none.
func (v Values) of(namespace string, reference podvalues.Reference) (found map[string][]byte, err error) {
	if v != nil {
		if found, err = v(reference.Kind, reference.Name); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", reference.Kind, reference.Name, err)
		}
	}
	if found == nil && !reference.Optional {
		return nil, &MissingError{Kind: reference.Kind, Namespace: namespace, Name: reference.Name}
	}
	return found, nil
}

// variable is one key of an object; false if it is optional and missing.
func (v Values) variable(namespace string, from podvalues.Variable) (string, bool, error) {
	all, err := v.of(namespace, from.Reference)
	if err != nil {
		return "", false, err
	}
	value, found := all[from.Key]
	if !found && !from.Optional {
		return "", false, &MissingError{Kind: from.Kind, Namespace: namespace, Name: from.Name, Key: from.Key}
	}
	return string(value), found, checkVariable(from.Reference, from.Key, value)
}

// checkVariable refuses variables that an environment cannot hold unchanged. The kernel
// ends a variable at a zero byte (execve(2)), and the container's spec and the CRI of
// Kubernetes carry text: other bytes would be replaced without a word, and two
// different keys could become one.
func checkVariable(from podvalues.Reference, key string, value []byte) error {
	if utf8.Valid(value) && !bytes.ContainsRune(value, 0) {
		return nil
	}
	return fmt.Errorf("key %q of %s %s is not text in UTF-8, or has a zero byte: an environment variable cannot carry it; mount it as a file (volumes[].%s)",
		key, from.Kind, from.Name, strings.ToLower(from.Kind[:1])+from.Kind[1:])
}

// variables are a container's envFrom in order; a later source wins.
func (v Values) variables(
	namespace string, sources []corev1.EnvFromSource,
) (names []string, found map[string]string, err error) {
	found = map[string]string{}
	for i, source := range sources {
		for _, from := range podvalues.OfVariables(source) {
			data, err := v.of(namespace, from.Reference)
			if err != nil {
				return nil, nil, fmt.Errorf("envFrom[%d]: %w", i, err)
			}
			for _, key := range slices.Sorted(maps.Keys(data)) {
				name := source.Prefix + key
				if _, known := found[name]; !known {
					names = append(names, name)
				}
				if err := checkVariable(from.Reference, key, data[key]); err != nil {
					return nil, nil, fmt.Errorf("envFrom[%d]: %w", i, err)
				}
				found[name] = string(data[key])
			}
		}
	}
	return names, found, nil
}

// files are the content of a volume. Of two sources with a file of one path, the later wins.
func (v Values) files(pod *corev1.Pod, volume podvalues.Volume) (files []File, err error) {
	mode := int32(defaultFileMode)
	if volume.Mode != nil {
		mode = *volume.Mode
	}
	for _, source := range volume.Sources {
		more, err := v.filesOf(pod, source, mode)
		if err != nil {
			return nil, err
		}
		for _, file := range more {
			files = slices.DeleteFunc(files, func(earlier File) bool { return earlier.Path == file.Path })
			files = append(files, file)
		}
	}
	return files, nil
}

func (v Values) filesOf(pod *corev1.Pod, source podvalues.Source, mode int32) (files []File, err error) {
	data, err := v.of(pod.Namespace, source.Reference)
	if err != nil {
		return nil, err
	}
	items := source.Items
	if len(items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		value, found := data[item.Key]
		if !found && source.Optional {
			continue
		}
		if !found {
			return nil, &MissingError{Kind: source.Kind, Namespace: pod.Namespace, Name: source.Name, Key: item.Key}
		}
		file := File{Path: path.Clean(item.Path), Data: value, Mode: uint32(mode)} //nolint:gosec // between 0 and 0777
		if item.Mode != nil {
			file.Mode = uint32(*item.Mode) //nolint:gosec // between 0 and 0777
		}
		if security := pod.Spec.SecurityContext; security != nil && security.FSGroup != nil {
			file.GID = uint32(*security.FSGroup) //nolint:gosec // checked when it was applied
			file.Mode |= groupReads
		}
		files = append(files, file)
	}
	return files, nil
}

// mount is a mount of a volume of values: all files, or with a subPath one of them, or
// those below a directory.
func (v Values) mount(pod *corev1.Pod, volume podvalues.Volume, mount corev1.VolumeMount) (Mount, error) {
	files, err := v.files(pod, volume)
	if err != nil {
		return Mount{}, err
	}
	memory := Mount{Target: path.Clean(mount.MountPath), ReadOnly: true, Memory: true, Files: files}
	sub := path.Clean(mount.SubPath)
	if sub == "." {
		return memory, nil
	}
	memory.SubPath, memory.Files = sub, nil
	for _, file := range files {
		if file.Path == sub {
			memory.File = true
		}
		if file.Path == sub || strings.HasPrefix(file.Path, sub+"/") {
			memory.Files = append(memory.Files, file)
		}
	}
	if len(memory.Files) == 0 {
		return Mount{}, fmt.Errorf("subPath %q: no key of the volume has this path: correct it, or add the key", mount.SubPath)
	}
	return memory, nil
}
