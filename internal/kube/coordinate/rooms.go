package coordinate

import (
	"math"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// rooms is the capacity of segments for classes, from the CSIStorageCapacity objects that
// the nodes' processes write. It is safe for concurrent use.
type rooms struct {
	objects *cluster.Store[*storagev1.CSIStorageCapacity]
	grown   func()

	mu    sync.Mutex
	known map[goal]int64
}

// goal is a class in a segment (claim.Term.String).
type goal struct{ class, segment string }

func newRooms(objects *cluster.Store[*storagev1.CSIStorageCapacity]) *rooms {
	r := &rooms{objects: objects, known: map[goal]int64{}}
	objects.OnChange(func(old, now *storagev1.CSIStorageCapacity) {
		r.mu.Lock()
		before := int64(-1)
		if old != nil {
			before = largest(old)
			delete(r.known, goalOf(old))
		}
		if now != nil {
			r.known[goalOf(now)] = largest(now)
		}
		r.mu.Unlock()
		if now != nil && largest(now) > before && r.grown != nil {
			r.grown()
		}
	})
	return r
}

// onGrowth registers the function that is called when there is more room somewhere.
func (r *rooms) onGrowth(f func()) { r.grown = f }

// of returns the room for a class in a segment, in bytes. known is false if no object
// reports it.
func (r *rooms) of(class string, segment claim.Term) (bytes int64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes, known = r.known[goal{class, segment.String()}]
	return bytes, known
}

// lacks reports whether objects exist for other classes only. A driver without
// GET_CAPACITY has none at all.
func (r *rooms) lacks(class string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for known := range r.known {
		if known.class == class {
			return false
		}
	}
	return len(r.known) > 0
}

func goalOf(object *storagev1.CSIStorageCapacity) goal {
	var segments map[string]string
	if object.NodeTopology != nil {
		segments, _ = metav1.LabelSelectorAsMap(object.NodeTopology)
	}
	return goal{object.StorageClassName, claim.NewTerm(segments).String()}
}

// largest returns the size of the largest volume for which an object reports room.
func largest(object *storagev1.CSIStorageCapacity) int64 {
	bytes := int64(0)
	if object.Capacity != nil {
		bytes = object.Capacity.Value()
	}
	limit := int64(math.MaxInt64)
	if object.MaximumVolumeSize != nil {
		limit = object.MaximumVolumeSize.Value()
	}
	return min(bytes, limit)
}
