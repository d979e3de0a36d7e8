package volumes

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func TestRepeats(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want bool
	}{
		{"the outcome of a step is uncertain", fmt.Errorf("claim a: %w", &uncertainStepError{backend.ErrUnavailable}), true},
		{"one of two steps is uncertain", errors.Join(backend.ErrNotFound, &uncertainStepError{backend.ErrBusy}), true},
		{"the driver rejects the request", &blocked{error: &rejectedError{backend.ErrInvalid}}, false},
		{"another claim is being created", waitFor(dependencies(dependency(claimResource, "ns/a")), "", "waits"), true},
		{"a Secret is missing", waitFor(dependencies(dependency("secrets", "ns/a")), "", "waits"), false},
		{"a class is missing", waitFor(dependencies(dependency("storageclasses", "fast")), "", "waits"), false},
		{"another pod uses the volume", waitingFor("Pod", "ns/a", "waits"), true},
		{"a final failure of the driver", backend.ErrNotFound, false},
		{"a check before the call", errors.New("the driver does not clone volumes"), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Repeats(c.err); got != c.want {
				t.Errorf("Repeats(%v) is %t", c.err, got)
			}
		})
	}
}
