package capacity

import (
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Created says that a volume was made, reachable from these places: they have
// less room now.
func (c *Controller) Created(_ string, topologies []*csi.Topology) {
	var terms []claim.Term
	for _, topology := range topologies {
		terms = append(terms, claim.NewTerm(topology.GetSegments()))
	}
	c.refresh(func(q *question) bool {
		return len(q.segment) == 0 || slices.ContainsFunc(terms, func(term claim.Term) bool {
			return len(term) > 0 && (term.Within(q.segment) || q.segment.Within(term))
		})
	})
}

// Failed says that a volume of a class could not be made, perhaps for lack of
// room that an object promises.
func (c *Controller) Failed(class string) {
	c.refresh(func(q *question) bool { return slices.Contains(q.classes, class) })
}

// Deleted says that a volume is gone: there is more room where it was.
func (c *Controller) Deleted(volume *corev1.PersistentVolume) {
	var terms []corev1.NodeSelectorTerm
	if affinity := volume.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		terms = affinity.Required.NodeSelectorTerms
	}
	c.refresh(func(q *question) bool {
		return len(q.segment) == 0 || slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
			return touches(term, q.segment)
		})
	})
}

// touches tells whether a volume with this affinity took room of a segment:
// they have a key in common, and no common key has another value. It is asked
// for each place at each deletion, so it makes nothing.
func touches(term corev1.NodeSelectorTerm, segment claim.Term) bool {
	common := false
	for _, expression := range term.MatchExpressions {
		at := slices.IndexFunc(segment, func(s claim.Segment) bool { return s.Key == expression.Key })
		if at < 0 || expression.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		if !slices.Contains(expression.Values, segment[at].Value) {
			return false
		}
		common = true
	}
	return common
}

// refresh puts some questions soon. Together they are put no faster than one
// per gap, however much is provisioned: a driver may have to look at all of its
// volumes to answer one.
func (c *Controller) refresh(which func(*question) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan == nil {
		return
	}
	var keys []string
	for key, q := range c.plan.questions {
		if which(q) {
			keys = append(keys, key)
		}
	}
	pause := min(time.Duration(len(keys))*c.gap, c.options.Poll)
	for _, key := range keys {
		c.queue.AddAfter(askPrefix+key, max(0, time.Until(c.asked[key].Add(pause))))
	}
}
