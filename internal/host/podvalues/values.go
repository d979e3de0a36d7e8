// Package podvalues has what a pod takes from Secrets and ConfigMaps of its namespace: which
// objects its containers refer to, and which of their keys become which files. Both kinds
// are served in the same way.
package podvalues

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The kinds of objects with values.
const (
	Secret    = "Secret"
	ConfigMap = "ConfigMap"
)

// Reference names an object with values.
type Reference struct {
	Kind, Name string
	// Optional: the container starts without the object, or without the key.
	Optional bool
}

func reference(kind, name string, optional *bool) Reference {
	return Reference{kind, name, optional != nil && *optional}
}

// Source is one object of a volume.
type Source struct {
	Reference
	// Field is its path below the volume, and NameField that of the object's name.
	Field, NameField string
	// Items are the keys that become files; all, by their names, if there are none.
	Items []corev1.KeyToPath
}

// Volume is a volume of values.
type Volume struct {
	// Field is its path below the pod's volume.
	Field string
	// Mode is the one of files whose item has none; nil: 0644.
	Mode    *int32
	Sources []Source
}

// OfVolume describes a volume of values; false if the volume is of another kind.
func OfVolume(volume *corev1.Volume) (Volume, bool) {
	switch {
	case volume.Secret != nil:
		s := volume.Secret
		return Volume{"secret", s.DefaultMode, []Source{
			{reference(Secret, s.SecretName, s.Optional), "secret", "secret.secretName", s.Items},
		}}, true
	case volume.ConfigMap != nil:
		c := volume.ConfigMap
		return Volume{"configMap", c.DefaultMode, []Source{
			{reference(ConfigMap, c.Name, c.Optional), "configMap", "configMap.name", c.Items},
		}}, true
	case volume.Projected != nil:
		projected := Volume{Field: "projected", Mode: volume.Projected.DefaultMode}
		for i, one := range volume.Projected.Sources {
			at := fmt.Sprintf("projected.sources[%d].", i)
			if s := one.Secret; s != nil {
				projected.Sources = append(projected.Sources,
					Source{reference(Secret, s.Name, s.Optional), at + "secret", at + "secret.name", s.Items})
			}
			if c := one.ConfigMap; c != nil {
				projected.Sources = append(projected.Sources,
					Source{reference(ConfigMap, c.Name, c.Optional), at + "configMap", at + "configMap.name", c.Items})
			}
		}
		return projected, true
	}
	return Volume{}, false
}

// Variable is a variable that is one key of an object.
type Variable struct {
	Reference
	// Field is its path below the variable's valueFrom.
	Field string
	Key   string
}

// OfVariable describes where a variable comes from; there are none, or several of a
// manifest that is not valid.
func OfVariable(from *corev1.EnvVarSource) (variables []Variable) {
	if key := from.SecretKeyRef; key != nil {
		variables = append(variables, Variable{reference(Secret, key.Name, key.Optional), "secretKeyRef", key.Key})
	}
	if key := from.ConfigMapKeyRef; key != nil {
		variables = append(variables, Variable{reference(ConfigMap, key.Name, key.Optional), "configMapKeyRef", key.Key})
	}
	return variables
}

// OfVariables describes an object all of whose keys are variables, as OfVariable does;
// the variables have no Key.
func OfVariables(from corev1.EnvFromSource) (variables []Variable) {
	if s := from.SecretRef; s != nil {
		variables = append(variables, Variable{Reference: reference(Secret, s.Name, s.Optional), Field: "secretRef"})
	}
	if c := from.ConfigMapRef; c != nil {
		variables = append(variables, Variable{Reference: reference(ConfigMap, c.Name, c.Optional), Field: "configMapRef"})
	}
	return variables
}

// Of lists what a pod's containers refer to, each object once and sorted. One that is
// referred to as optional and otherwise is not optional.
func Of(pod *corev1.Pod) (all []Reference) {
	for i := range pod.Spec.Volumes {
		volume, _ := OfVolume(&pod.Spec.Volumes[i])
		for _, source := range volume.Sources {
			all = append(all, source.Reference)
		}
	}
	add := func(variables []Variable) {
		for _, variable := range variables {
			all = append(all, variable.Reference)
		}
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, source := range container.EnvFrom {
			add(OfVariables(source))
		}
		for _, variable := range container.Env {
			if variable.ValueFrom != nil {
				add(OfVariable(variable.ValueFrom))
			}
		}
	}
	slices.SortFunc(all, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), compareOptional(a, b))
	})
	return slices.CompactFunc(all, func(a, b Reference) bool { return a.Kind == b.Kind && a.Name == b.Name })
}

func compareOptional(a, b Reference) int {
	switch {
	case a.Optional == b.Optional:
		return 0
	case a.Optional:
		return 1
	}
	return -1
}

// Refers reports whether a pod cannot start a container without an object.
func Refers(pod *corev1.Pod, kind, name string) bool {
	return slices.Contains(Of(pod), Reference{Kind: kind, Name: name})
}

// In returns the values of a Secret or a ConfigMap; nil if there is no such object.
func In(object any) map[string][]byte {
	found := map[string][]byte{}
	switch object := object.(type) {
	case *corev1.Secret:
		if object == nil {
			return nil
		}
		maps.Copy(found, object.Data)
		for key, value := range object.StringData {
			found[key] = []byte(value)
		}
	case *corev1.ConfigMap:
		if object == nil {
			return nil
		}
		for key, value := range object.Data {
			found[key] = []byte(value)
		}
		maps.Copy(found, object.BinaryData)
	default:
		return nil
	}
	return found
}
