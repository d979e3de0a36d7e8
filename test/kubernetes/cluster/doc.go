// Package cluster runs a real Kubernetes cluster of one control plane and n
// nodes on one Linux machine: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, the snapshot controller, and for each node a containerd and a
// kubelet. It needs root, and neither a container engine nor a registry.
//
// # How it is built
//
// One process, the supervisor, is the first process of PID, mount, network, UTS
// and IPC namespaces of its own and runs the control plane. Each node is a
// process below it with such namespaces once more, and a root directory in which
// everything is where a machine of its own would have it: /var/lib/kubelet,
// /run/containerd, /var/lib/holdfast. So a DaemonSet runs unchanged on both, a
// port of the host network is free on each, and what a pod mounts for its node
// the other does not see.
//
// # How it ends
//
// The death of the supervisor, however it comes, takes along every process of
// the cluster (the kernel ends a PID namespace with its first process), every
// mount, and every network device, which all live in its namespaces. Outside are
// left only the directory, control groups and loop devices: Down finds them by
// the record that Up wrote before it made anything, and loop devices by the
// files that back them.
package cluster
