package claim

// AttacherFinalizer returns the finalizer of a driver's attach controller, with
// external-attacher's name. The controller sets it on VolumeAttachments and on their
// PersistentVolumes. The creator of a PersistentVolume may add it at once, and the
// deleter may remove it when no VolumeAttachment is left.
func AttacherFinalizer(driver string) string { return "external-attacher/" + Sanitise(driver) }
