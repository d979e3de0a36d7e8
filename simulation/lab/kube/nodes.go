package kube

import (
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// nodeOf is the node that has a volume, by its name or ID at the driver, with node deployment.
func nodeOf(volume string) string {
	_, node, _ := strings.Cut(volume, "@")
	return node
}

// withNode is the name of the volume of a process: with node deployment, each node could make
// one of that name.
func (p *process) withNode(name string) string {
	if p.node == "" {
		return name
	}
	return name + "@" + p.node
}

// call has the driver, or its instance on the node of a process, execute a call.
func (w *World) call(
	ctx context.Context, p *process, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if p.node == "" {
		return w.driver.Intercept(ctx, request, info, handler)
	}
	return w.driver.Instance(p.node)(ctx, request, info, handler)
}

// checkNode checks that a node's process calls its driver for what is on that node. Another
// node's driver would answer that a volume is deleted, and it would stay.
func (w *World) checkNode(p *process, rpc string, request any) {
	where := ""
	switch r := request.(type) {
	case *csi.CreateSnapshotRequest:
		where = nodeOf(r.GetSourceVolumeId())
	case *csi.DeleteSnapshotRequest:
		where = nodeOf(w.driver.SnapshotSource(r.GetSnapshotId()))
	case interface{ GetVolumeId() string }:
		where = nodeOf(r.GetVolumeId())
	}
	if where != "" && where != p.node {
		w.violate("%s calls %s for what is on node %s: %s", p.Name(), rpc, where, subject(request))
	}
}

// label sets the label of a node, as an admission policy of the chart does for claims, and
// snapshot-controller for contents.
func (w *World) label(o object, key, node string) {
	if !w.shape.labels || node == "" {
		return
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = claim.NodeLabelValue(node)
	o.SetLabels(labels)
}

// nodesOf are the nodes where a pod can use a PersistentVolume.
func (w *World) nodesOf(pv *corev1.PersistentVolume) []string {
	if affinity := pv.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		for _, node := range w.nodes {
			if claim.FitsNode(affinity, node, map[string]string{csidriver.TopologyKey: node}) {
				return []string{node}
			}
		}
	}
	return w.nodes
}
