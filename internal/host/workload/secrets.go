package workload

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// Secrets finds a Secret in the pod's namespace; nil if there is none. Its
// values go to the container by a pipe, and into no file of this machine.
type Secrets func(name string) (*corev1.Secret, error)

// MissingSecretError is of a Secret, or of a key of one, that a pod refers to.
type MissingSecretError struct {
	Namespace, Name string
	// Key is empty if the whole Secret is missing.
	Key string
}

func (e *MissingSecretError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("Secret %s does not exist in namespace %s: make it with 'holdfast apply'", e.Name, e.Namespace)
	}
	return fmt.Sprintf("Secret %s in namespace %s has no key %q: add it, or correct the reference", e.Name,
		e.Namespace, e.Key)
}

// The modes of a secret volume's files.
const (
	defaultSecretMode = 0o644
	// groupReads are the bits that the kubelet adds for the fsGroup of a read-only volume.
	groupReads = 0o440
)

// values are the data of a Secret. With optional, a missing one has none.
func (s Secrets) values(namespace, name string, optional *bool) (map[string][]byte, error) {
	var secret *corev1.Secret
	if s != nil {
		var err error
		if secret, err = s(name); err != nil {
			return nil, fmt.Errorf("read Secret %s: %w", name, err)
		}
	}
	if secret == nil {
		if optional != nil && *optional {
			return nil, nil
		}
		return nil, &MissingSecretError{Namespace: namespace, Name: name}
	}
	values := maps.Clone(secret.Data)
	if values == nil {
		values = map[string][]byte{}
	}
	for key, value := range secret.StringData {
		values[key] = []byte(value)
	}
	return values, nil
}

// value is one key of a Secret; false if it is optional and missing.
func (s Secrets) value(namespace string, from *corev1.SecretKeySelector) (string, bool, error) {
	values, err := s.values(namespace, from.Name, from.Optional)
	if err != nil {
		return "", false, err
	}
	value, found := values[from.Key]
	if !found && (from.Optional == nil || !*from.Optional) {
		return "", false, &MissingSecretError{Namespace: namespace, Name: from.Name, Key: from.Key}
	}
	return string(value), found, checkVariable(from.Name, from.Key, value)
}

// checkVariable refuses variables that an environment cannot hold unchanged. The kernel
// ends a variable at a zero byte (execve(2)), and the container's spec and the CRI of
// Kubernetes carry text: other bytes would be replaced without a word, and two
// different keys could become one.
func checkVariable(secret, key string, value []byte) error {
	if utf8.Valid(value) && !bytes.ContainsRune(value, 0) {
		return nil
	}
	return fmt.Errorf("key %q of Secret %s is not text in UTF-8, or has a zero byte: an environment variable cannot carry it; mount it as a file (volumes[].secret)", key, secret)
}

// variables are a container's envFrom in order; a later source wins.
func (s Secrets) variables(
	namespace string, sources []corev1.EnvFromSource,
) (names []string, values map[string]string, err error) {
	values = map[string]string{}
	for i, source := range sources {
		if source.SecretRef == nil {
			return nil, nil, fmt.Errorf("envFrom[%d]: only secretRef is supported", i)
		}
		data, err := s.values(namespace, source.SecretRef.Name, source.SecretRef.Optional)
		if err != nil {
			return nil, nil, fmt.Errorf("envFrom[%d]: %w", i, err)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			name := source.Prefix + key
			if _, known := values[name]; !known {
				names = append(names, name)
			}
			if err := checkVariable(source.SecretRef.Name, key, data[key]); err != nil {
				return nil, nil, fmt.Errorf("envFrom[%d]: %w", i, err)
			}
			values[name] = string(data[key])
		}
	}
	return names, values, nil
}

// files are the content of a secret volume.
func (s Secrets) files(pod *corev1.Pod, volume *corev1.SecretVolumeSource) ([]File, error) {
	data, err := s.values(pod.Namespace, volume.SecretName, volume.Optional)
	if err != nil {
		return nil, err
	}
	mode, items := int32(defaultSecretMode), volume.Items
	if volume.DefaultMode != nil {
		mode = *volume.DefaultMode
	}
	if len(items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	var files []File
	for _, item := range items {
		value, found := data[item.Key]
		if !found && volume.Optional != nil && *volume.Optional {
			continue
		}
		if !found {
			return nil, &MissingSecretError{Namespace: pod.Namespace, Name: volume.SecretName, Key: item.Key}
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
