package manifest

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkSecretVolume has the API server's checks of a secret volume.
func checkSecretVolume(at string, source *corev1.SecretVolumeSource) (problems []string) {
	if source.SecretName == "" {
		problems = append(problems, at+".secretName: is missing")
	} else {
		problems = append(problems, subdomain(at+".secretName", source.SecretName)...)
	}
	problems = append(problems, checkFileMode(at+".defaultMode", source.DefaultMode)...)
	paths := map[string]bool{}
	for i, item := range source.Items {
		at := fmt.Sprintf("%s.items[%d]", at, i)
		problems = append(problems, checkSecretKey(at+".key", item.Key)...)
		problems = append(problems, checkFileMode(at+".mode", item.Mode)...)
		clean := path.Clean(item.Path)
		switch {
		case item.Path == "", clean == ".", !filepath.IsLocal(item.Path), slices.Contains(strings.Split(item.Path, "/"), ".."):
			problems = append(problems, fmt.Sprintf("%s.path: %q is not a path below the volume", at, item.Path))
		case paths[clean]:
			problems = append(problems, fmt.Sprintf("%s.path: %q is there twice", at, item.Path))
		}
		paths[clean] = true
	}
	for one := range paths {
		for above := path.Dir(one); above != "." && above != "/"; above = path.Dir(above) {
			if paths[above] {
				problems = append(problems, fmt.Sprintf("%s.items: %q is a file, and %q is below it", at, above, one))
			}
		}
	}
	return problems
}

func checkFileMode(at string, mode *int32) []string {
	if mode == nil || (*mode >= 0 && *mode <= 0o777) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d is not between 0 and 0777 (octal; 511)", at, *mode)}
}

func checkSecretKey(at, key string) (problems []string) {
	if key == "" {
		return []string{at + ": is missing"}
	}
	for _, problem := range validation.IsConfigMapKey(key) {
		problems = append(problems, at+": "+problem)
	}
	return problems
}

func checkValueFrom(at string, source *corev1.EnvVarSource) (problems []string) {
	key := source.SecretKeyRef
	if key == nil {
		return nil
	}
	if source.FieldRef != nil {
		problems = append(problems, at+": names more than one source")
	}
	problems = append(problems, subdomain(at+".secretKeyRef.name", key.Name)...)
	return append(problems, checkSecretKey(at+".secretKeyRef.key", key.Key)...)
}

func checkEnvFrom(at string, container *corev1.Container) (problems []string) {
	for i, source := range container.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", at, i)
		if strings.Contains(source.Prefix, "=") {
			problems = append(problems, fmt.Sprintf("%s.prefix: %q has a =", at, source.Prefix))
		}
		switch {
		case source.SecretRef != nil:
			problems = append(problems, subdomain(at+".secretRef.name", source.SecretRef.Name)...)
		case source.ConfigMapRef == nil: // that is refused by its field
			problems = append(problems, at+": names no source; supported is secretRef")
		}
	}
	return problems
}

// isSecret reports whether a volume of the pod is a secret one.
func (c containers) isSecret(name string) bool {
	return slices.ContainsFunc(c.pod.Spec.Volumes,
		func(v corev1.Volume) bool { return v.Name == name && v.Secret != nil })
}

// SecretsOf are the names of the Secrets that a pod's containers refer to, each
// once and sorted; without optional ones.
func SecretsOf(pod *corev1.Pod) (names []string) {
	add := func(name string, optional *bool) {
		if optional == nil || !*optional {
			names = append(names, name)
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret != nil {
			add(volume.Secret.SecretName, volume.Secret.Optional)
		}
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, source := range container.EnvFrom {
			if source.SecretRef != nil {
				add(source.SecretRef.Name, source.SecretRef.Optional)
			}
		}
		for _, variable := range container.Env {
			if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
				add(variable.ValueFrom.SecretKeyRef.Name, variable.ValueFrom.SecretKeyRef.Optional)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
