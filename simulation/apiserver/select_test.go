package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func labelled(name, node string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if node != "-" {
		pv.Labels = map[string]string{"node": node}
	}
	return pv
}

// TestSelectors_ofListAndWatch compares the lists and the events of selections.
func TestSelectors_ofListAndWatch(t *testing.T) {
	for selector, row := range map[string]struct {
		listed string // of the objects a on n1, b on n2, c on no node, d without the label
		events string // after d gets n1, a gets n2, b is changed and c is deleted
	}{
		"":              {"a b c d", "MODIFIED d, MODIFIED a, MODIFIED b, DELETED c"},
		"node=n1":       {"a", "ADDED d, DELETED a"},
		"node in (n1,)": {"a c", "ADDED d, DELETED a, DELETED c"},
		"node=n2":       {"b", "ADDED a, MODIFIED b"},
		"!node":         {"d", "DELETED d"},
		"name: a":       {"a", "MODIFIED a"},
		"name: x":       {"", ""},
	} {
		t.Run(selector, func(t *testing.T) {
			t.Parallel()
			c := apiserver.New(t, csidriver.New("memory.test"), labelled("a", "n1"), labelled("b", "n2"), labelled("c", ""), labelled("d", "-"))
			volumes := c.Core.CoreV1().PersistentVolumes()
			options := metav1.ListOptions{LabelSelector: selector}
			if name, ok := strings.CutPrefix(selector, "name: "); ok {
				options = metav1.ListOptions{FieldSelector: "metadata.name=" + name}
			}
			list, err := volumes.List(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			var listed []string
			for _, pv := range list.Items {
				listed = append(listed, pv.Name)
			}
			if got := strings.Join(listed, " "); got != row.listed {
				t.Errorf("listed %q, want %q", got, row.listed)
			}
			options.ResourceVersion = list.ResourceVersion
			watching, err := volumes.Watch(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			defer watching.Stop()
			changed := labelled("b", "n2")
			changed.Annotations = map[string]string{"x": "y"}
			c.Put(labelled("d", "n1"), labelled("a", "n2"), changed)
			c.Delete(labelled("c", ""))
			end := labelled("end", "n1")
			c.Add(end)
			if got := until(watching, row.events); got != row.events {
				t.Errorf("events %q, want %q", got, row.events)
			}
		})
	}
}

// until reads as many events as are expected, without those of the object end.
func until(watching watch.Interface, expected string) string {
	var events []string
	for expected != "" && len(events) <= strings.Count(expected, ",") {
		event, ok := <-watching.ResultChan()
		pv, isVolume := event.Object.(*corev1.PersistentVolume)
		if !ok || !isVolume || pv.Name == "end" {
			break
		}
		events = append(events, fmt.Sprintf("%s %s", event.Type, pv.Name))
	}
	return strings.Join(slices.Clip(events), ", ")
}

// TestSelectors_aWatchFromBeforeAnObjectLeftMustListAgain: nothing tells it that the
// object is not selected any more.
func TestSelectors_aWatchFromBeforeAnObjectLeftMustListAgain(t *testing.T) {
	c := apiserver.New(t, csidriver.New("memory.test"), labelled("a", "n1"))
	volumes := c.Core.CoreV1().PersistentVolumes()
	list, err := volumes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Put(labelled("a", "n2"))
	for selector, expired := range map[string]bool{"node=n1": true, "": false} {
		watching, err := volumes.Watch(t.Context(), metav1.ListOptions{LabelSelector: selector, ResourceVersion: list.ResourceVersion})
		if (err != nil) != expired {
			t.Errorf("a watch of %q from before the change: %v", selector, err)
		}
		if watching != nil {
			watching.Stop()
		}
	}
}
