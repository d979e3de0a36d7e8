package manifest

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// isHosts reports whether only the host writes objects of a kind.
func isHosts(kind string) bool { return kind == "CSINode" || kind == "VolumeAttachment" }

// Kinds are the kinds that a manifest may contain, in the order in which they are
// applied.
func Kinds() []store.Kind {
	return slices.DeleteFunc(store.Kinds(), func(kind store.Kind) bool { return isHosts(kind.Kind) })
}

func findKind(meta metav1.TypeMeta) (store.Kind, error) {
	for _, kind := range store.Kinds() {
		if kind.GroupVersion().String() != meta.APIVersion || kind.Kind != meta.Kind {
			continue
		}
		if isHosts(kind.Kind) {
			return store.Kind{}, fmt.Errorf("%s objects are written by the host and cannot be given", kind.Kind)
		}
		return kind, nil
	}
	return store.Kind{}, fmt.Errorf("kind %q of apiVersion %q is not supported; supported are %s", meta.Kind,
		meta.APIVersion, supported())
}

// supported lists the kinds by their versions.
func supported() string {
	var versions []string
	kinds := map[string][]string{}
	for _, kind := range Kinds() {
		version := kind.GroupVersion().String()
		if kinds[version] == nil {
			versions = append(versions, version)
		}
		kinds[version] = append(kinds[version], kind.Kind)
	}
	lists := make([]string, len(versions))
	for i, version := range versions {
		lists[i] = version + " " + strings.Join(kinds[version], ", ")
	}
	return strings.Join(lists, "; ")
}
