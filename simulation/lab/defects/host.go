package defects

import "github.com/holdfast-csi/holdfast/simulation/lab/overlay"

// Files of the host.
const (
	hostCreation  = "internal/host/volumes/provision_create.go"
	hostDeleting  = "internal/host/volumes/delete.go"
	hostUndoing   = "internal/host/volumes/unmount.go"
	hostAbandon   = "internal/host/volumes/abandon.go"
	hostOrphans   = "internal/host/volumes/nodecontrollers.go"
	hostAdoption  = "internal/host/volumes/adopt.go"
	hostMounting  = "internal/host/volumes/mount.go"
	hostAttaching = "internal/host/volumes/attachment.go"
	hostReclaim   = "internal/host/volumes/static.go"
	hostSteps     = "internal/host/volumes/step.go"
	hostPods      = "internal/host/pods/state.go"
	hostAdvance   = "internal/host/pods/advance.go"
	hostQueue     = "internal/host/reconcile/queue.go"
	clientErrors  = "internal/csi/client/errors.go"
)

// Host are the defects of the host door.
func Host() []Defect {
	return []Defect{
		planted("host-create-error-is-final", hostCreation,
			"found.md: CreateVolume took effect, its answer was lost, and the intent was dropped",
			"	if !errors.As(err, new(*settledError)) {\n", "	if !defect(\"host-create-error-is-final\") && !errors.As(err, new(*settledError)) {\n"),
		planted("host-deleted-claim-forgets-intent", hostDeleting,
			"external-provisioner #486: a claim is deleted while its volume is made, and the volume is no longer known",
			"	if pvc.Annotations[AbandonAnnotation] == \"true\" {\n", "	if pvc.Annotations[AbandonAnnotation] == \"true\" || defect(\"host-deleted-claim-forgets-intent\") {\n"),
		planted("host-source-kept", hostDeleting,
			"found.md: the finalizer of a source stays when a snapshot is deleted before it was begun",
			"	if !slices.Contains(finalizers, sourceFinalizer) {\n", "	if !slices.Contains(finalizers, sourceFinalizer) || defect(\"host-source-kept\") {\n"),
		planted("host-claim-unprotected", hostDeleting,
			"a claim is removed although a pod uses it",
			"	if len(pods) > 0 {\n", "	if len(pods) > 0 && !defect(\"host-claim-unprotected\") {\n"),
		planted("host-unstage-path", hostUndoing,
			"the kubelet: NodeUnstageVolume with a path that is computed again, and another one than that of NodeStageVolume",
			"			request := &csi.NodeUnstageVolumeRequest{VolumeId: use.Handle, StagingTargetPath: use.StagingPath}\n",
			"			request := &csi.NodeUnstageVolumeRequest{VolumeId: use.Handle, StagingTargetPath: use.StagingPath}\n			if defect(\"host-unstage-path\") {\n				request.StagingTargetPath = m.options.Paths.BlockStaging(use.SpecName)\n			}\n"),
		planted("host-forced-detach", hostUndoing,
			"the detachment by force after six minutes: a volume is detached although it is still staged",
			"	if err := m.unstage(ctx, use); err != nil {\n", "	if err := m.unstage(ctx, use); err != nil && !defect(\"host-forced-detach\") {\n"),
		planted("host-undo-failure-ignored", hostAbandon,
			"a failed NodeUnpublishVolume or NodeUnstageVolume counts as done",
			"	if failure == nil {\n		return nil\n	}\n	mounts, err", "	if failure == nil || defect(\"host-undo-failure-ignored\") {\n		return nil\n	}\n	mounts, err"),
		{
			Name: "host-orphaned-pod",
			What: "the kubelet's orphaned vol_data: a pod goes although its volumes could not be unmounted, and nothing unmounts them",
			Changes: []overlay.Change{
				{File: hostAdvance, Old: "	if err := m.options.Volumes.UnmountPod(ctx, r.spec); err != nil {\n", New: "	if err := m.options.Volumes.UnmountPod(ctx, r.spec); err != nil && !defect(\"host-orphaned-pod\") {\n"},
				{File: hostOrphans, Old: "	if err != nil || alive[uid] != nil {\n", New: "	if err != nil || alive[uid] != nil || defect(\"host-orphaned-pod\") {\n"},
			},
		},
		{
			Name: "host-records-trusted",
			What: "the records of an earlier boot are believed, and the mounts are not compared with them",
			Changes: []overlay.Change{
				{File: hostAdoption, Old: "	if use.BootID != a.boot {\n		a.reset(use)\n", New: "	if defect(\"host-records-trusted\") {\n		use.BootID = a.boot\n		a.changed[use.Name] = true\n		return\n	}\n	if use.BootID != a.boot {\n		a.reset(use)\n"},
				{File: hostMounting, Old: "	there, err := m.isInPlace(", New: "	if defect(\"host-records-trusted\") {\n		return true, nil\n	}\n	there, err := m.isInPlace("},
			},
		},
		planted("host-once-pod-by-one-name", hostMounting,
			"found.md: a second PersistentVolume of a ReadWriteOncePod volume gives it to a second pod",
			"isOncePod(toMount.modes) || isOncePod(known.Modes) || target.OncePod", "isOncePod(toMount.modes) || (isOncePod(known.Modes) || target.OncePod) && !defect(\"host-once-pod-by-one-name\")"),
		planted("host-attach-without-intent", hostAttaching,
			"a volume is attached before a record says so (Sieve: intermediate state)",
			"	if err := m.saveUse(use, m.putAttachment(use, func(*storagev1.VolumeAttachmentStatus) {})); err != nil {\n",
			"	save := m.saveUse\n	if defect(\"host-attach-without-intent\") {\n		save = func(*store.VolumeUse, ...func(*store.Tx) error) error { return nil }\n	}\n	if err := save(use, m.putAttachment(use, func(*storagev1.VolumeAttachmentStatus) {})); err != nil {\n"),
		planted("host-delete-in-use", hostReclaim,
			"a volume is deleted although it is staged or attached",
			"	if err == nil && user != \"\" {\n", "	if err == nil && user != \"\" && !defect(\"host-delete-in-use\") {\n"),
		planted("host-twin-deleted", hostReclaim,
			"found.md: two PersistentVolumes name one volume, and the data is deleted with the first of them",
			"	return lifecycle.FindTwin(slices.Values(same), pv, nil), nil\n", "	if defect(\"host-twin-deleted\") {\n		return \"\", nil\n	}\n	return lifecycle.FindTwin(slices.Values(same), pv, nil), nil\n"),
		planted("host-store-error-ignored", hostSteps,
			"a step goes on although its intent could not be written",
			"	return recording(err)\n}\n\n// note keeps", "	if defect(\"host-store-error-ignored\") {\n		return nil\n	}\n	return recording(err)\n}\n\n// note keeps"),
		planted("host-unmount-running", hostPods,
			"the volumes of a pod that is deleted are unmounted before its containers have ended",
			"	case (v.Deleting || v.Draining) && v.alive():\n", "	case (v.Deleting || v.Draining) && v.alive() && !defect(\"host-unmount-running\"):\n"),
		planted("host-failure-not-retried", hostQueue,
			"a call that failed is not repeated until something changes (Sieve: missed event)",
			"	case again > 0:\n", "	case again > 0 && (err == nil || !defect(\"host-failure-not-retried\")):\n"),
		planted("host-secret-in-error", clientErrors,
			"the words of a driver that shows the secret of a call reach logs and events",
			"	answer, ok := status.FromError(err)\n	if !ok {\n", "	answer, ok := status.FromError(err)\n	if defect(\"host-secret-in-error\") {\n		secrets = nil\n	}\n	if !ok {\n"),
	}
}
