// Package kube is the world of the Kubernetes door for simulation/lab: the real controllers
// (internal/kube) in several processes, against an API server and a CSI driver in memory,
// with Kubernetes' own controllers, kubelets, users and administrators simulated.
//
// Real: internal/kube with everything below it, client-go's clients, caches and queues, the
// requests as HTTP and JSON, internal/csi/client, internal/why.
//
// Simulated: the API server (simulation/apiserver), the driver (simulation/csidriver), the
// controllers of kube-controller-manager and of the snapshot-controller as far as they act
// on volumes, the scheduler's selection of nodes, the kubelet's part of an expansion.
package kube
