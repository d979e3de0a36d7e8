package cli

import "testing"

// TestIdentity_ofAPodIsNotThatOfItsSuccessor: a pod of a StatefulSet that is
// deleted by force may run on, and the next one has its name.
func TestIdentity_ofAPodIsNotThatOfItsSuccessor(t *testing.T) {
	identity := func(k kubeFlags) string {
		t.Helper()
		name, err := k.identity()
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	first := kubeFlags{pod: "driver-0", podUID: "u1"}
	for name, other := range map[string]kubeFlags{
		"its successor": {pod: "driver-0", podUID: "u2"}, "one without a UID": {pod: "driver-0"}, "another pod": {pod: "driver-1", podUID: "u3"},
	} {
		if identity(first) == identity(other) {
			t.Errorf("%s has the same identity, %s", name, identity(other))
		}
	}
	if a, b := identity(kubeFlags{pod: "driver-0"}), identity(kubeFlags{pod: "driver-0"}); a == b {
		t.Errorf("two processes of unknown pods are both %s", a)
	}
	if a, b := identity(first), identity(first); a != b {
		t.Errorf("a container that is started again in its pod is %s and was %s", b, a)
	}
}
