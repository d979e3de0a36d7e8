package claim

// AttacherFinalizer is what the attach controller of a driver puts on
// VolumeAttachments and on the PersistentVolumes they are about
// (external-attacher's). The creator of a PersistentVolume may add it at
// once, and the deleter may remove it when no VolumeAttachment is left.
func AttacherFinalizer(driver string) string { return "external-attacher/" + Sanitise(driver) }
