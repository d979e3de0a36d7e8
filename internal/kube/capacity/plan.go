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

// plan is which objects there should be, and which questions to the driver fill
// them. It is made anew when classes or places change, and never altered.
type plan struct {
	questions map[string]*question // by key
	goals     map[string]string    // the key of the question that fills an object
}

// question is one GetCapacity: classes that the driver cannot tell apart share it.
type question struct {
	segment    claim.Term
	parameters map[string]string
	classes    []string // sorted
}

// planFor gives one object to each class in each segment.
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

// changed lists the questions that a plan has and the one before it had not, or
// not for the same classes.
func (p *plan) changed(before *plan) []string {
	var keys []string
	for key, q := range p.questions {
		if before == nil || before.questions[key] == nil || !slices.Equal(before.questions[key].classes, q.classes) {
			keys = append(keys, key)
		}
	}
	return keys
}

// wanted tells whether the classes of a driver get objects. Claims of immediate
// binding are made before a scheduler could read them; so says external-provisioner.
func wanted(class *storagev1.StorageClass, driver string, immediate bool) bool {
	if class.Provisioner != driver {
		return false
	}
	return immediate || class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingImmediate
}

// goalOf names an object that should be; one string, so that nothing is in a
// queue or a map twice.
func goalOf(class string, segment claim.Term) string { return class + "\x00" + segment.String() }

// goalOfObject is the goal that an object serves; "" for one that serves none,
// since it is for no node or for nodes chosen in a way that is not ours.
func goalOfObject(object *storagev1.CSIStorageCapacity) string {
	selector := object.NodeTopology
	if selector == nil || len(selector.MatchExpressions) > 0 {
		return ""
	}
	return goalOf(object.StorageClassName, claim.NewTerm(selector.MatchLabels))
}

// selectorOf chooses the nodes of a segment; that of the empty one all nodes.
func selectorOf(segment claim.Term) *metav1.LabelSelector {
	if len(segment) == 0 {
		return &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{MatchLabels: segment.Map()}
}

// digestOf is the same for equal parameters only.
func digestOf(parameters map[string]string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		_, _ = fmt.Fprintf(sum, "%q=%q,", key, parameters[key]) // a hash never fails
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
