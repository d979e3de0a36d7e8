// Package claim has the rules between Kubernetes storage objects and CSI:
// which request a claim and its class make, which PersistentVolume an answer
// makes, how names and paths are formed, what an error means for the next try.
// It is pure: no I/O, no clock, no state. The host and the Kubernetes
// controllers both take their rules from here, so that a manifest means the
// same on one machine and on a cluster.
package claim
