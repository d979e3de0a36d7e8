package capacity

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// waiting is a claim whose pod is not scheduled yet.
func waiting(name, class string) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name, pvc.UID = "default", name, types.UID("uid-of-"+name)
	pvc.Spec.StorageClassName = &class
	return pvc
}

func TestCapacity_warnsPendingClaimsOfAClassThatTheDriverRejects(t *testing.T) {
	driver := newDriver()
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "GetCapacity" {
			return csidriver.Fail(codes.InvalidArgument, "parameter colour is unknown")
		}
		return nil
	}
	c := world(t, driver)
	placed := waiting("placed", "odd")
	placed.Annotations = map[string]string{claim.SelectedNodeAnnotation: "n1"}
	c.Add(class("odd", "colour", "blue"), class("other"), waiting("earlier", "odd"), placed, waiting("unconcerned", "unknown"))
	controller, _ := begin(c, Options{})
	warned := func(name string) error {
		for _, event := range c.Events() {
			if strings.Contains(event, "default/"+name) && strings.Contains(event, "parameter colour is unknown") {
				return nil
			}
		}
		return fmt.Errorf("claim %s has no event: %q", name, c.Events())
	}
	c.Eventually(func() error { return warned("earlier") })
	c.Add(waiting("later", "odd"))
	c.Eventually(func() error { return warned("later") })
	rejected := make(chan string, 100)
	controller.OnRefusal(func(class string) { rejected <- class })
	c.Add(class("new", "colour", "red"))
	for one := range rejected { // the earlier class may be rejected again meanwhile
		if one == "new" {
			break
		}
	}
	for _, name := range []string{"placed", "unconcerned"} {
		if warned(name) == nil {
			t.Errorf("claim %s has an event that does not concern it: %q", name, c.Events())
		}
	}
}
