package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reduce drops what no controller reads, before it is kept: who wrote which
// field, and of a node all but its name and labels (its images alone are some
// ten KiB). It may change the item: nobody else has seen it yet.
func reduce(item any) any {
	if object, is := item.(metav1.Object); is {
		object.SetManagedFields(nil)
	}
	if node, is := item.(*corev1.Node); is {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
				Labels: node.Labels, DeletionTimestamp: node.DeletionTimestamp,
			},
			Spec: corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable},
		}
	}
	return item
}
