package metrics

// Kinds of operations: the values of the label kind, the same for controllers of a cluster
// and for a host.
const (
	KindProvision           = "provision"
	KindDelete              = "delete"
	KindAttach              = "attach"
	KindDetach              = "detach"
	KindResize              = "resize"
	KindResizeFilesystem    = "resize_filesystem"
	KindModify              = "modify"
	KindSnapshot            = "snapshot"
	KindDeleteSnapshot      = "delete_snapshot"
	KindGroupSnapshot       = "group_snapshot"
	KindDeleteGroupSnapshot = "delete_group_snapshot"
	KindMount               = "mount"
	KindUnmount             = "unmount"
	KindRepublish           = "republish"
)

// KindOfOperation describes a kind.
type KindOfOperation struct {
	Name string
	// Cluster and Host are whether controllers of a cluster, and a host, have it.
	Cluster, Host bool
	What          string
}

// Kinds returns all kinds, in the order of a volume's life.
func Kinds() []KindOfOperation {
	return []KindOfOperation{
		{KindProvision, true, true, "a claim gets its volume; of a host, a claim that is being deleted counts as `delete`"},
		{KindAttach, true, false, "ControllerPublishVolume; on a host part of `mount`"},
		{KindMount, false, true, "a pod starts: its volumes are attached, staged and published"},
		{KindRepublish, false, true, "volumes whose driver asks for it are published again"},
		{KindResize, true, true, "ControllerExpandVolume"},
		{KindResizeFilesystem, false, true, "NodeExpandVolume; in a cluster the kubelet's"},
		{KindModify, true, true, "ControllerModifyVolume"},
		{KindSnapshot, true, true, "a snapshot is taken and becomes ready to use"},
		{KindGroupSnapshot, true, false, "the same of a group"},
		{KindDeleteSnapshot, true, true, "DeleteSnapshot"},
		{KindDeleteGroupSnapshot, true, false, "DeleteVolumeGroupSnapshot"},
		{KindUnmount, false, true, "a pod ends, or is gone: its volumes are unpublished, unstaged and detached"},
		{KindDetach, true, false, "ControllerUnpublishVolume; on a host part of `unmount`"},
		{KindDelete, true, true, "DeleteVolume"},
	}
}

// HostKinds returns the names of the kinds that a host has.
func HostKinds() []string {
	var names []string
	for _, kind := range Kinds() {
		if kind.Host {
			names = append(names, kind.Name)
		}
	}
	return names
}
