package cli

import (
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
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

// signalled closes a channel when a text was written.
type signalled struct {
	mu   sync.Mutex
	all  strings.Builder
	text string
	seen chan struct{}
}

func (s *signalled) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := strings.Contains(s.all.String(), s.text)
	s.all.Write(data)
	if !before && strings.Contains(s.all.String(), s.text) {
		close(s.seen)
	}
	return len(data), nil
}

// A deletion that takes long shows its steps, also those that were over before.
func TestDelete_showsTheStepsOfALongDeletion(t *testing.T) {
	h := startTestHost(t)
	step := func(name string, status journal.Status, pod string) {
		h.journal.Step(journal.StepEntry{Step: name, Status: status, Volume: "claim default/data", Took: 2 * time.Second,
			About: []journal.Ref{{Kind: "Pod", Key: "default/" + pod}}})
	}
	web := pod("web", corev1.PodRunning)
	h.put(t, web)
	step("publish", journal.Done, "web") // before the command
	h.onDelete = func(store.Kind, string) (api.Deleted, error) {
		ending := pod("web", corev1.PodRunning)
		ending.DeletionTimestamp = new(metav1.Now())
		h.put(t, ending)
		step("unpublish", journal.Done, "web")
		step("unpublish", journal.Done, "other")
		step("unstage", journal.Started, "web")
		return api.Deleted{}, nil
	}
	stderr := &signalled{text: "unpublish", seen: make(chan struct{})}
	go func() {
		<-stderr.seen
		step("unstage", journal.Done, "web")
		if err := h.store.Update(func(tx *store.Tx) error { return tx.Pods().Delete("default/web") }); err != nil {
			t.Error(err)
		}
	}()
	if code := Run(t.Context(), "", []string{"delete", "pod/web", "--root=" + h.root}, io.Discard, stderr); code != 0 {
		t.Errorf("exit code %d", code)
	}
	expect(t, "stderr", stderr.all.String(), "claim default/data: unpublish 2.0 s\nclaim default/data: unstage 2.0 s\n")
}
