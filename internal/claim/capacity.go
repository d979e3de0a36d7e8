package claim

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// The labels of CSIStorageCapacity objects, which Holdfast shares with
// external-provisioner.
const (
	CapacityDriverLabel  = "csi.storage.k8s.io/drivername"
	CapacityManagerLabel = "csi.storage.k8s.io/managed-by"
)

const (
	capacityManager = "external-provisioner"
	// longestLabel is how long a label's value may be
	// (k8s.io/apimachinery/pkg/util/validation, LabelValueMaxLength).
	longestLabel = 63
)

// CapacityManager is the value of CapacityManagerLabel for a process that works
// for a node, or for all with "". It is external-provisioner's to the letter:
// the one that replaces the other finds its objects.
func CapacityManager(node string) string {
	if node == "" {
		return capacityManager
	}
	name := capacityManager + "-" + node
	if len(name) <= longestLabel {
		return name
	}
	separators := len("-") + len(hash32("")) + len("-")
	if left := longestLabel - separators - len(node); left > 0 {
		return capacityManager[:left] + "-" + hash32(capacityManager) + "-" + node
	}
	return capacityManager + "-" + hash32(name)
}

func hash32(text string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(text)) // a hash never fails
	return fmt.Sprintf("%08x", sum.Sum32())
}

// CapacityParameters returns the parameters of a class that the driver gets in
// GetCapacity: those of CreateVolume, without Kubernetes' own keys. Unknown
// keys are not an error: the event of the claim names them, and the claim gets no event
// if the scheduler finds no room for its pod first.
func CapacityParameters(parameters map[string]string) map[string]string {
	seen := map[string]string{}
	for key, value := range parameters {
		if !strings.HasPrefix(key, ReservedPrefix) {
			seen[key] = value
		}
	}
	return seen
}
