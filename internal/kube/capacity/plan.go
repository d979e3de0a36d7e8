package capacity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// plan is the desired objects and the questions to the driver that fill them. A new
// plan replaces it when classes or segments change; a plan itself is immutable.
type plan struct {
	questions map[string]*question // by key
	goals     map[string]string    // desired object to the key of the question that fills it
}

// question is one GetCapacity call. Classes that look the same to the driver share it.
type question struct {
	segment    claim.Term
	parameters map[string]string
	classes    []string // sorted
}

// planFor plans one object for each class in each segment.
func planFor(classes []*storagev1.StorageClass, segments []claim.Term) *plan {
	p := &plan{questions: map[string]*question{}, goals: map[string]string{}}
	for _, class := range classes {
		parameters := claim.CapacityParameters(class.Parameters)
		digest := digestOf(parameters)
		for _, segment := range segments {
			key := segment.String() + "\x00" + digest
			if p.questions[key] == nil {
				p.questions[key] = &question{segment: segment, parameters: parameters}
			}
			p.questions[key].classes = append(p.questions[key].classes, class.Name)
			p.goals[goalOf(class.Name, segment)] = key
		}
	}
	for _, q := range p.questions {
		slices.Sort(q.classes)
	}
	return p
}

// changed lists the questions that the plan before lacks or has for other classes.
func (p *plan) changed(before *plan) []string {
	var keys []string
	for key, q := range p.questions {
		if before == nil || before.questions[key] == nil || !slices.Equal(before.questions[key].classes, q.classes) {
			keys = append(keys, key)
		}
	}
	return keys
}

// wanted reports whether a class gets objects. A claim of a class with immediate
// binding is provisioned before the scheduler reads them, so that such classes get
// objects only on demand (external-provisioner, --capacity-for-immediate-binding).
func wanted(class *storagev1.StorageClass, driver string, immediate bool) bool {
	if class.Provisioner != driver {
		return false
	}
	return immediate || class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingImmediate
}

// goalOf is the key of a desired object, as one string for maps and indexes.
func goalOf(class string, segment claim.Term) string { return class + "\x00" + segment.String() }

// goalOfObject returns the goal that an object serves. It returns "" if the object
// selects no node, or selects nodes by expressions, which Holdfast never writes.
func goalOfObject(object *storagev1.CSIStorageCapacity) string {
	selector := object.NodeTopology
	if selector == nil || len(selector.MatchExpressions) > 0 {
		return ""
	}
	return goalOf(object.StorageClassName, claim.NewTerm(selector.MatchLabels))
}

// selectorOf selects the nodes of a segment; the empty segment has all nodes.
func selectorOf(segment claim.Term) *metav1.LabelSelector {
	if len(segment) == 0 {
		return &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{MatchLabels: segment.Map()}
}

// digestOf returns a digest that is equal for equal parameters only.
func digestOf(parameters map[string]string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		_, _ = fmt.Fprintf(sum, "%q=%q,", key, parameters[key]) // a hash never fails
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
