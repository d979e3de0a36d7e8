package cli

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func TestDelete_byLabelsAndAll(t *testing.T) {
	h := startTestHost(t)
	labelled, other := pendingClaim("b"), pendingClaim("c")
	labelled.Labels = map[string]string{"app": "web"}
	other.Namespace = "other"
	h.put(t, pendingClaim("a"), labelled, other, pod("p", corev1.PodRunning))
	var deleted []string
	h.onDelete = func(kind store.Kind, key string) (api.Deleted, error) {
		deleted = append(deleted, kind.Kind+" "+key)
		return api.Deleted{Gone: true}, nil
	}
	cases := []struct {
		line   string
		code   int
		stderr string
		want   []string
	}{
		{"delete pvc --all", 0, "", []string{"PersistentVolumeClaim default/a", "PersistentVolumeClaim default/b"}},
		{"delete pvc,pods --all", 0, "", []string{"Pod default/p", "PersistentVolumeClaim default/a", "PersistentVolumeClaim default/b"}},
		{"delete pvc -l app=web", 0, "", []string{"PersistentVolumeClaim default/b"}},
		{"delete pvc -l app=none", 0, "No resources found", nil},
		{"delete pvc --all -l app=web", 2, "not both", nil},
		{"delete pvc a --all", 2, "names do not go with", nil},
		{"delete all --all", 2, "name the kinds", nil},
		{"delete pvc -l ==", 2, `-l "=="`, nil},
		{"delete -f x --all", 2, "-f names the objects", nil},
		{"delete pvc --namespace=other --all", 0, "", []string{"PersistentVolumeClaim other/c"}},
		// Variables of scripts that are not set.
		{"delete pvc -n= --all", 2, "not the name of a namespace", nil},
		{"delete pvc --namespace= --all", 2, "not the name of a namespace", nil},
		{"delete pvc --namespace=../x --all", 2, "not the name of a namespace", nil},
		{"delete pvc --selector=", 2, "use --all", nil},
		{"delete pvc --selector=SPACE", 2, "use --all", nil},
		{"delete pvc a --selector=", 2, "use --all", nil},
	}
	for _, c := range cases {
		t.Run(c.line, func(t *testing.T) {
			deleted = nil
			words := strings.Fields(c.line)
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "SPACE", " ")
			}
			code, stdout, stderr := h.run(t, words...)
			if code != c.code || !strings.Contains(stderr, c.stderr) || !slices.Equal(deleted, c.want) {
				t.Errorf("exit code %d, %s%s, deleted %v", code, stdout, stderr, deleted)
			}
		})
	}
}
