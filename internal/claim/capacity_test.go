package claim

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestCapacityManager(t *testing.T) {
	node := func(length int) string { return strings.Repeat("n", length) }
	for name, c := range map[string]struct{ node, want string }{
		"all nodes":       {"", "external-provisioner"},
		"short":           {"node-1", "external-provisioner-node-1"},
		"42 still fit":    {node(42), "external-provisioner-" + node(42)},
		"43 do not":       {node(43), "external-p-53f40b57-" + node(43)},
		"52 leave one":    {node(52), "e-53f40b57-" + node(52)},
		"53 leave none":   {node(53), "external-provisioner-" + hash32("external-provisioner-"+node(53))},
		"253, the most":   {node(253), "external-provisioner-" + hash32("external-provisioner-"+node(253))},
		"with its domain": {"ip-10-0-0-1.eu-central-1.compute.internal", "external-provisioner-ip-10-0-0-1.eu-central-1.compute.internal"},
	} {
		got := CapacityManager(c.node)
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if faults := validation.IsValidLabelValue(got); len(faults) > 0 {
			t.Errorf("%s: %s is not a label: %v", name, got, faults)
		}
	}
	if CapacityManager(node(60)) == CapacityManager(node(61)) {
		t.Error("two nodes share a name")
	}
}

func TestCapacityParameters_areThoseOfCreateVolume(t *testing.T) {
	given := map[string]string{"type": "ssd", "fstype": "xfs", "csi.storage.k8s.io/fstype": "ext4", "csi.storage.k8s.io/unknown": "x"}
	if got := CapacityParameters(given); !maps.Equal(got, map[string]string{"type": "ssd", "fstype": "xfs"}) {
		t.Errorf("got %v", got)
	}
	if len(given) != 4 {
		t.Error("the class was changed")
	}
}
