package capacity

import (
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Created records that a volume was created in these topologies: the segments
// that overlap with them have less capacity now.
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

// Failed records that CreateVolume failed for a class, perhaps because an object
// reports capacity that the driver no longer has.
func (c *Controller) Failed(class string) {
	c.refresh(func(q *question) bool { return slices.Contains(q.classes, class) })
}

// Deleted records that a volume was deleted: its segments have more capacity now.
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

// touches reports whether a volume with this affinity used capacity of a segment:
// they have a key in common, and no common key has different values. It runs for
// each segment at each deletion, so it allocates nothing.
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

// refresh queues the questions that which selects. It limits them to one per gap
// on average, at any rate of provisioning: a driver may have to list all of its
// volumes for one answer.
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
