package defects

import "github.com/holdfast-csi/holdfast/simulation/lab/overlay"

// Files of the controllers.
const (
	creation   = "internal/kube/provision/create.go"
	claims     = "internal/kube/provision/claim.go"
	undoing    = "internal/kube/provision/undo.go"
	deleting   = "internal/kube/provision/delete.go"
	attached   = "internal/kube/provision/attached.go"
	saving     = "internal/kube/provision/saving.go"
	attaching  = "internal/kube/attach/attach.go"
	detaching  = "internal/kube/attach/detach.go"
	begun      = "internal/kube/attach/begun.go"
	confirming = "internal/kube/attach/confirm.go"
	contending = "internal/kube/lease/contender.go"
	terms      = "internal/kube/lease/term.go"
	snapshots  = "internal/kube/snapshot/content/create.go"
	steps      = "internal/kube/snapshot/content/decide.go"
	contents   = "internal/kube/snapshot/content/controller.go"
	caches     = "internal/kube/cluster/store.go"
	resizing   = "internal/kube/resize/resize.go"
	modifying  = "internal/kube/resize/modify.go"
	outcomes   = "internal/lifecycle/create.go"
)

// Kube are the defects of the Kubernetes door.
func Kube() []Defect {
	return []Defect{
		planted("provisioner-486", creation,
			"external-provisioner #486: the claim is deleted after CreateVolume and before the PersistentVolume; the process no longer knows the volume",
			"	if c.notNeeded(pvc, intent) {\n", "	if defect(\"provisioner-486\") && pvc == nil {\n		c.end(pvc, intent)\n		return 0, nil\n	}\n	if c.notNeeded(pvc, intent) {\n"),
		planted("provisioner-1469", claims,
			"external-provisioner #1469: a claim that only a stale cache shows gets a volume",
			"	if !known.saving && time.Since(c.started) > c.options.CacheLag", "	if defect(\"provisioner-1469\") || !known.saving && time.Since(c.started) > c.options.CacheLag"),
		planted("unseen-volume-awaited", claims,
			"found.md: a PersistentVolume was created and deleted while the watch was interrupted, "+
				"and nothing woke its claim (Sieve: missed state)",
			"	if !c.volumes.ReachedVersion(version) {\n",
			"	if defect(\"unseen-volume-awaited\") || !c.volumes.ReachedVersion(version) {\n"),
		planted("provisioner-1507", creation,
			"external-provisioner #1507: the finalizer of a source stays when the claim that copies it is deleted",
			"	if intent.Source != \"\" {\n", "	if intent.Source != \"\" && !defect(\"provisioner-1507\") {\n"),
		planted("lost-answer-is-final", outcomes,
			"found.md: CreateVolume took effect, its answer was lost, and the intent was dropped (Sieve: intermediate state)",
			"	case outcome == claim.OutcomeUncertain:\n", "	case outcome == claim.OutcomeUncertain && !defect(\"lost-answer-is-final\"):\n"),
		planted("repeated-refusal-is-final", outcomes,
			"found.md: the repeated call failed with a code that says nothing about the first one, and the intent was dropped",
			"	case c.Repeated && (c.Elsewhere || !rejectsRequest(failure)):\n", "	case !defect(\"repeated-refusal-is-final\") && c.Repeated && (c.Elsewhere || !rejectsRequest(failure)):\n"),
		{
			Name: "undo-trusts-cache",
			What: "found.md: an intent was taken for that of a lost volume, and the data of a PersistentVolume was deleted (Sieve: stale state). " +
				"Each of three lines of defence prevents that; the defect removes all",
			Changes: []overlay.Change{
				{File: undoing, Old: "	settled, err := c.settleLive(ctx, pvc, intent)\n", New: "	settled, err := c.settleLive(ctx, pvc, intent)\n	if defect(\"undo-trusts-cache\") {\n		settled, err = false, nil\n	}\n"},
				{File: undoing, Old: "	answer := lifecycle.Answer{", New: "	if defect(\"undo-trusts-cache\") {\n		holder = lifecycle.Holder{}\n	}\n	answer := lifecycle.Answer{"},
				{File: saving, Old: "c.progress.of(intent.Volume.Spec.ClaimRef.UID).refused\n", New: "c.progress.of(intent.Volume.Spec.ClaimRef.UID).refused && !defect(\"undo-trusts-cache\")\n"},
			},
		},
		planted("saved-mark-missing", saving,
			"found.md: the mark that the PersistentVolume may exist was lost, and the volume was deleted with its data",
			"	return !intent.Unsaved && ", "	return !defect(\"saved-mark-missing\") && !intent.Unsaved && "),
		planted("server-error-is-refusal", saving,
			"an answer 500 to the creation of a PersistentVolume counts as proof that it does not exist",
			"		return code >= http.StatusBadRequest && code < http.StatusInternalServerError\n", "		return code >= http.StatusBadRequest && (code < http.StatusInternalServerError || defect(\"server-error-is-refusal\"))\n"),
		planted("delete-trusts-cache", deleting,
			"a volume is deleted by the cached policy of its PersistentVolume (Sieve: stale state)",
			"	case live.UID != pv.UID || !c.made(live) || c.due(live) != lifecycle.DueDelete:\n", "	case !defect(\"delete-trusts-cache\") && (live.UID != pv.UID || !c.made(live) || c.due(live) != lifecycle.DueDelete):\n"),
		planted("attachments-of-a-standby", attached,
			"found.md: a standby took the lease over, and deleted a volume whose publication its cache lacked (Sieve: stale state)",
			"	if a.store == nil {\n		return true, nil\n", "	if a.store == nil || defect(\"attachments-of-a-standby\") {\n		return true, nil\n"),
		planted("delete-before-detach", deleting,
			"a volume is deleted although a VolumeAttachment of it exists",
			"		if node, attached := c.attached.to(pv.Name); attached && ", "		if node, attached := c.attached.to(pv.Name); attached && !defect(\"delete-before-detach\") && "),
		planted("finalizer-before-unpublish", detaching,
			"external-attacher #215 and the detachment by force after six minutes: the VolumeAttachment goes although the volume is still attached",
			"	if err != nil {\n		if err = c.saveError(", "	if err != nil && !defect(\"finalizer-before-unpublish\") {\n		if err = c.saveError("),
		planted("standby-trusts-cache", confirming,
			"found.md: a standby took the lease over with an old cache, and called the driver for a VolumeAttachment that was gone or another one (Sieve: stale state)",
			"	if c.tenure.current(ctx, c.attachments) {\n", "	if c.tenure.current(ctx, c.attachments) || defect(\"standby-trusts-cache\") {\n"),
		planted("publish-without-intent", attaching,
			"a volume is published before a VolumeAttachment records it (Sieve: intermediate state)",
			"	if err := c.recordIntent(ctx, va, desired); err != nil {\n", "	if err := c.recordIntent(ctx, va, desired); err != nil && !defect(\"publish-without-intent\") {\n"),
		planted("attached-before-publish", attaching,
			"the status says attached although ControllerPublishVolume failed",
			"	written, publishContext, err := c.publish(ctx, va, can)\n", "	written, publishContext, err := c.publish(ctx, va, can)\n	if defect(\"attached-before-publish\") && va.Status.AttachError != nil {\n		err = nil\n	}\n"),
		planted("forced-removal-forgotten", begun,
			"a user removes the VolumeAttachment by force while the driver publishes, and nothing unpublishes the volume",
			"	if !ok {\n", "	if !ok || defect(\"forced-removal-forgotten\") {\n"),
		planted("deleted-lease-is-free", contending,
			"a deleted Lease counts as free although its holder works",
			"	if c.lease == nil || c.holder() == \"\" || c.mine() {\n", "	if defect(\"deleted-lease-is-free\") && c.missing {\n		return true\n	}\n	if c.lease == nil || c.holder() == \"\" || c.mine() {\n"),
		planted("lease-by-their-clock", contending,
			"the end of a lease is computed from the holder's clock, which jumps",
			"	return c.options.clock.Now().Sub(c.seen) >= lasts\n", "	if defect(\"lease-by-their-clock\") && c.lease.Spec.RenewTime != nil {\n		return time.Since(c.lease.Spec.RenewTime.Time) >= lasts\n	}\n	return c.options.clock.Now().Sub(c.seen) >= lasts\n"),
		planted("term-without-end", terms,
			"the leader that cannot renew its lease works on",
			"	t.stop = t.clock.AfterFunc(remaining, func() {", "	if defect(\"term-without-end\") {\n		remaining *= 100\n	}\n	t.stop = t.clock.AfterFunc(remaining, func() {"),
		planted("snapshot-mark-removed", snapshots,
			"found.md: the mark of a snapshot was removed after a code of unknown outcome, and the snapshot leaked",
			"	if c.kind.View(object).Handle == \"\" && outcome.KeepsIntent() {\n", "	if c.kind.View(object).Handle == \"\" && outcome.KeepsIntent() && !defect(\"snapshot-mark-removed\") {\n"),
		planted("snapshot-mark-ignored", steps,
			"a content is deleted while the outcome of CreateSnapshot is unknown (Sieve: intermediate state)",
			"	return !t.marked(v) && t.beingDeleted(v)\n", "	return (defect(\"snapshot-mark-ignored\") || !t.marked(v)) && t.beingDeleted(v)\n"),
		planted("snapshot-not-frozen", snapshots,
			"found.md: a class that was recreated changed the repeated request for a snapshot",
			"	if c.marked(v) || v.Handle != \"\" {\n", "	if !defect(\"snapshot-not-frozen\") && (c.marked(v) || v.Handle != \"\") {\n"),
		planted("snapshot-policy-stale", contents,
			"a snapshot is deleted by the cached policy of its content (Sieve: stale state)",
			"	object, err := c.writer.Recheck(ctx, object, c.is(StepDelete))\n	if err != nil {\n		return object, err\n	}\n	if err := c.checkTwin", "	live, err := c.writer.Recheck(ctx, object, c.is(StepDelete))\n	if err != nil && !defect(\"snapshot-policy-stale\") {\n		return object, err\n	}\n	if err == nil {\n		object = live\n	}\n	if err := c.checkTwin"),
		planted("own-write-stays", caches,
			"the cache prefers an own write for ever, and hides what others write (Sieve: stale state)",
			"	return err != nil || order >= 0\n}\n\n// Reached", "	return (err != nil || order >= 0) && !defect(\"own-write-stays\")\n}\n\n// Reached"),
		planted("own-write-forgotten", caches,
			"the cache forgets own writes, and work is done twice from an older state (Sieve: stale state)",
			"	if s.passed(object) {\n		return\n	}\n	key := keyOf(object)\n", "	if s.passed(object) || defect(\"own-write-forgotten\") {\n		return\n	}\n	key := keyOf(object)\n"),
		planted("deletion-missed", caches,
			"a deletion that happened while the watch was broken is not handled (Sieve: missed state)",
			"			if gone, ok := item.(cache.DeletedFinalStateUnknown); ok {\n", "			if gone, ok := item.(cache.DeletedFinalStateUnknown); ok && !defect(\"deletion-missed\") {\n"),
		planted("handlers-miss-updates", caches,
			"changes while several events arrive at once are handled for the first only (Sieve: missed state)",
			"			if ok && also {\n				call(old, object)\n", "			if ok && also && !(defect(\"handlers-miss-updates\") && object.GetDeletionTimestamp() != nil) {\n				call(old, object)\n"),
		planted("expanded-too-early", resizing,
			"the claim says its new size although ControllerExpandVolume failed",
			"		return c.expandFailed(ctx, s, step, err)\n	}\n	c.memories", "		if !defect(\"expanded-too-early\") {\n			return c.expandFailed(ctx, s, step, err)\n		}\n		answer = &csi.ControllerExpandVolumeResponse{CapacityBytes: step.Target.Value()}\n	}\n	c.memories"),
		planted("modified-too-early", modifying,
			"the claim says its new attributes class although ControllerModifyVolume failed",
			"	if err != nil {\n		return c.modifyFailed(ctx, s, class.Name, err)\n", "	if err != nil && !defect(\"modified-too-early\") {\n		return c.modifyFailed(ctx, s, class.Name, err)\n"),
		planted("secret-in-error", creation,
			"the error of a failed CreateVolume has the secret of the request",
			"	if err != nil {\n		return nil, nil, refusal{err, lifecycle", "	if err != nil {\n		if defect(\"secret-in-error\") {\n			err = fmt.Errorf(\"%w (%v)\", err, read)\n		}\n		return nil, nil, refusal{err, lifecycle"),
	}
}
