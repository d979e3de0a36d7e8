// Package pods runs pods on this machine: it brings their volumes, runs their
// containers as processes below shims that outlive the host, restarts them as
// their restart policy says, and takes everything away when they are deleted.
// It is what the kubelet's pod workers are on a cluster, and it writes the
// status and the events that a kubelet writes.
//
// What is running is never remembered, it is looked at: a container's state
// file and the lock of its shim say it (package workload), so that a host that
// was killed at any moment goes on where the other one stopped.
package pods
