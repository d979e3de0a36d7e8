package provision

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// TestAPIServer_inTrouble: whatever the API server answers, each claim gets one
// volume, and nothing is left when the claims are gone.
func TestAPIServer_inTrouble(t *testing.T) {
	answer := func(err error) func(apiserver.Request) error {
		var asked atomic.Int32
		return func(apiserver.Request) error {
			// Each fourth one, but not for ever the same of four requests that are repeated.
			if n := asked.Add(1); n%4 == 0 && n%20 != 0 {
				return err
			}
			return nil
		}
	}
	things := schema.GroupResource{Resource: "things"}
	for name, trouble := range map[string]func(apiserver.Request) error{
		"conflicts":        answer(apierrors.NewConflict(things, "x", errors.New("it has been modified"))),
		"429":              answer(apierrors.NewTooManyRequests("later", 1)),
		"500":              answer(apierrors.NewInternalError(errors.New("broken"))),
		"503":              answer(apierrors.NewServiceUnavailable("no leader")),
		"504":              answer(apierrors.NewServerTimeout(things, "write", 0)),
		"slow":             func(apiserver.Request) error { time.Sleep(30 * time.Millisecond); return nil },
		"none, to be sure": func(apiserver.Request) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			w.controllerManager()
			w.run()
			w.React("*", "*", func(q apiserver.Request) error {
				// The claims and the lists are what the test itself looks at.
				if q.Verb == "list" || q.Verb == "watch" || q.Verb == "get" && q.Resource == "persistentvolumeclaims" || q.Verb == "update" && q.Resource != "configmaps" {
					return nil
				}
				return trouble(q)
			})
			var claims []*corev1.PersistentVolumeClaim
			for i := range 5 {
				claims = append(claims, newClaim(fmt.Sprint("c", i)))
				w.Add(claims[i])
			}
			w.complete(len(claims))
			if n := w.Driver.Count("DeleteVolume"); n != 0 {
				t.Errorf("%d volumes were deleted", n)
			}
			for _, pvc := range claims {
				w.Delete(pvc)
			}
			w.gone()
		})
	}
}

// TestAPIServer_whoseWatchesBreak: what is deleted between two watches leaves no
// event behind.
func TestAPIServer_whoseWatchesBreak(t *testing.T) {
	w := newWorld(t, newClass())
	w.controllerManager()
	w.run()
	var alive []*corev1.PersistentVolumeClaim
	for i := range 12 {
		pvc := newClaim(fmt.Sprint("c", i))
		w.BreakWatches()
		w.Add(pvc)
		if i%2 == 0 {
			alive = append(alive, pvc)
			continue
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
		w.BreakWatches()
		w.Delete(pvc)
	}
	w.complete(len(alive))
	for _, pvc := range alive {
		w.BreakWatches()
		w.Delete(pvc)
	}
	w.gone()
}
