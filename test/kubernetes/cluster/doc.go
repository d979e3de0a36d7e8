// Package cluster runs a real Kubernetes cluster of one control plane and n
// nodes on one Linux machine: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, the snapshot controller, and for each node a containerd and a
// kubelet. It needs root, and neither a container engine nor a registry.
//
// # How it is built
//
// One process, the supervisor, is the first process of its own PID, mount, network, UTS
// and IPC namespaces and runs the control plane. Each node is a process below it with
// another set of such namespaces, and a root directory with the paths of a whole
// machine: /var/lib/kubelet, /run/containerd, /var/lib/holdfast. So a DaemonSet runs
// unchanged on both, a port of the host network is free on each, and a pod's mounts are
// visible on its node only. The nodes can also be machines of their own: see
// Options.Machines.
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
