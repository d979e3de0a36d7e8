// Package journal keeps the events of objects, as a cluster does, and how long each
// step of each volume took. It is for people: it is bounded, and may lose the last
// moments before a power failure, because no decision depends on it.
package journal

// Ref names an object that something happened to.
type Ref struct {
	Kind string // such as PersistentVolumeClaim
	Key  string // namespace/name, or name
	UID  string // distinguishes objects of one name; may be empty
}

// Notice is one thing that happened, in the words of Kubernetes events.
type Notice struct {
	About   Ref
	Warning bool
	Reason  string // such as ProvisioningFailed
	Message string
}
