package manifest

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
)

// checkVolumeOfValues has the API server's checks of a volume of values.
func checkVolumeOfValues(at string, volume podvalues.Volume) (problems []string) {
	problems = append(problems, checkFileMode(at+"."+volume.Field+".defaultMode", volume.Mode)...)
	files := map[string]bool{}
	for _, source := range volume.Sources {
		if source.Name == "" {
			problems = append(problems, fmt.Sprintf("%s.%s: is missing", at, source.NameField))
		} else {
			problems = append(problems, subdomain(at+"."+source.NameField, source.Name)...)
		}
		for i, item := range source.Items {
			problems = append(problems, checkItem(fmt.Sprintf("%s.%s.items[%d]", at, source.Field, i), item, files)...)
		}
	}
	for one := range files {
		for above := path.Dir(one); above != "." && above != "/"; above = path.Dir(above) {
			if files[above] {
				problems = append(problems, fmt.Sprintf("%s.%s: %q is a file, and %q is below it", at, volume.Field, above, one))
			}
		}
	}
	return problems
}

// checkItem checks a key that becomes a file, and adds it to the files.
func checkItem(at string, item corev1.KeyToPath, files map[string]bool) (problems []string) {
	problems = append(checkKey(at+".key", item.Key), checkFileMode(at+".mode", item.Mode)...)
	clean := path.Clean(item.Path)
	switch {
	case item.Path == "", clean == ".", !filepath.IsLocal(item.Path), slices.Contains(strings.Split(item.Path, "/"), ".."):
		problems = append(problems, fmt.Sprintf("%s.path: %q is not a path below the volume", at, item.Path))
	case files[clean]:
		problems = append(problems, fmt.Sprintf("%s.path: %q is there twice", at, item.Path))
	}
	files[clean] = true
	return problems
}

func checkFileMode(at string, mode *int32) []string {
	if mode == nil || (*mode >= 0 && *mode <= 0o777) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d is not between 0 and 0777 (octal; 511)", at, *mode)}
}

func checkKey(at, key string) (problems []string) {
	if key == "" {
		return []string{at + ": is missing"}
	}
	for _, problem := range validation.IsConfigMapKey(key) {
		problems = append(problems, at+": "+problem)
	}
	return problems
}

func checkValueFrom(at string, source *corev1.EnvVarSource) (problems []string) {
	variables := podvalues.OfVariable(source)
	if len(variables) > 1 || len(variables) == 1 && source.FieldRef != nil {
		problems = append(problems, at+": names more than one source")
	}
	for _, variable := range variables {
		problems = append(problems, subdomain(at+"."+variable.Field+".name", variable.Name)...)
		problems = append(problems, checkKey(at+"."+variable.Field+".key", variable.Key)...)
	}
	return problems
}

func checkEnvFrom(at string, container *corev1.Container) (problems []string) {
	for i, source := range container.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", at, i)
		if strings.Contains(source.Prefix, "=") {
			problems = append(problems, fmt.Sprintf("%s.prefix: %q has a =", at, source.Prefix))
		}
		from := podvalues.OfVariables(source)
		switch len(from) {
		case 0:
			problems = append(problems, at+": names no source; supported are secretRef and configMapRef")
		case 1:
			problems = append(problems, subdomain(at+"."+from[0].Field+".name", from[0].Name)...)
		default:
			problems = append(problems, at+": names more than one source")
		}
	}
	return problems
}

// maximumValues is Kubernetes' limit of the values together of a Secret or a ConfigMap, in
// bytes.
const maximumValues = 1 << 20

// checkSecret says nothing of the values.
func checkSecret(secret *corev1.Secret) []string {
	problems, size := checkData("data", secret.Data)
	return append(problems, checkSize(size)...)
}

func checkConfigMap(config *corev1.ConfigMap) []string {
	problems, size := checkData("data", config.Data)
	more, binary := checkData("binaryData", config.BinaryData)
	problems = append(problems, more...)
	for _, key := range slices.Sorted(maps.Keys(config.BinaryData)) {
		if _, twice := config.Data[key]; twice {
			problems = append(problems, fmt.Sprintf("binaryData[%s]: the key is in data, too", key))
		}
	}
	return append(problems, checkSize(size+binary)...)
}

func checkData[V string | []byte](at string, data map[string]V) (problems []string, size int) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, problem := range validation.IsConfigMapKey(key) {
			problems = append(problems, fmt.Sprintf("%s[%s]: %s", at, key, problem))
		}
		size += len(data[key])
	}
	return problems, size
}

func checkSize(size int) []string {
	if size <= maximumValues {
		return nil
	}
	return []string{fmt.Sprintf("data: has %d bytes; %d at most", size, maximumValues)}
}
