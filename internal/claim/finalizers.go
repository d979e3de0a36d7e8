package claim

// AttacherFinalizer is what the attach controller of a driver puts on
// VolumeAttachments and on the PersistentVolumes they are about
// (external-attacher's). Whoever creates a PersistentVolume may put it on at
// once, and whoever deletes one may take it off when no VolumeAttachment is left.
func AttacherFinalizer(driver string) string { return "external-attacher/" + Sanitise(driver) }
