// Package pods runs pods on this machine: it brings their volumes, runs their
// containers as processes below shims that outlive the host, restarts them as
// their restart policy says, and takes everything away when they are deleted.
// It has the part of the kubelet's pod workers, and writes the status and the events of
// a kubelet.
//
// What is running is never remembered but observed: a container's state file
// and the lock of its shim show it (package workload). A host that starts after
// another one was killed continues where that one stopped.
package pods
