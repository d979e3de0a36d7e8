package kube

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// owes are the volumes that a process has to unpublish because their VolumeAttachment was
// removed by force while it published them: no other process knows of them.
type owes struct {
	mu sync.Mutex
	// published are the volumes and nodes of which the process knows that they are published, and
	// no VolumeAttachment says so yet.
	published, due map[string]bool
}

func (o *owes) publishes(where string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.published == nil {
		o.published, o.due = map[string]bool{}, map[string]bool{}
	}
	o.published[where] = true
}

// records notes that a VolumeAttachment says that a volume is published: who removes that by
// force takes the volume over.
func (o *owes) records(where string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.published, where)
}

// pay notes that the process unpublishes a volume.
func (o *owes) pay(where string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.published, where)
	delete(o.due, where)
}

// left are the volumes and nodes that are still to be unpublished.
func (o *owes) left() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.due))
}

// learns is called for a request that has its effect: a process that writes the status of a
// VolumeAttachment learns that it is gone.
func (w *World) learns(p *process, q *apiserver.Request) {
	if q.Verb != "patch" || q.Resource != attachments || q.Subresource != "status" {
		return
	}
	if _, ok := get[*storagev1.VolumeAttachment](w.mirror, attachments, "", q.Name); ok {
		return
	}
	p.owes.mu.Lock()
	defer p.owes.mu.Unlock()
	for where := range p.owes.published {
		var handle, node string
		_, _ = fmt.Sscan(where, &handle, &node)
		if q.Name == claim.AttachmentName(handle, driverName, node[len("id-"):]) {
			p.owes.due[where] = true
		}
	}
}

// debtsPaid: what was published without an object is unpublished by the process that did it.
func (w *World) debtsPaid() error {
	published := w.driver.Attachments()
	for _, r := range w.replicas {
		p := r.now()
		for _, where := range p.owes.left() {
			var handle, node string
			_, _ = fmt.Sscan(where, &handle, &node)
			if !p.paused.Load() && contains(published[handle], node) && !w.recorded(handle, node) {
				return fmt.Errorf("%s published volume %s to %s, learned that the VolumeAttachment is gone, and has not unpublished it",
					p.Name(), handle, node)
			}
		}
	}
	return nil
}
