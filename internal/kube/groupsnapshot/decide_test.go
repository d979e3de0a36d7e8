package groupsnapshot

import (
	"testing"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

func TestNext(t *testing.T) {
	old := existing("g", "m")
	for name, row := range map[string]struct {
		object *groupv1.VolumeGroupSnapshotContent
		want   content.Step
	}{
		"new":                              {group("a"), content.StepCreate},
		"asked for, no answer":             {group("a", markedYes), content.StepCreate},
		"failed":                           {group("a", failedWith("no")), content.StepCreate},
		"recorded, still marked":           {group("a", markedYes, takenAs("g", false, "m")), content.StepUnmark},
		"recorded and ready, still marked": {group("a", markedYes, takenAs("g", true, "m")), content.StepUnmark},
		"not ready":                        {group("a", takenAs("g", false, "m")), content.StepInspect},
		"ready":                            {group("a", takenAs("g", true, "m")), content.StepNothing},
		"static, new":                      {group("a", old), content.StepInspect},
		"static, not ready":                {group("a", old, takenAs("g", false, "m")), content.StepInspect},
		"static, ready":                    {group("a", old, takenAs("g", true, "m")), content.StepNothing},
		"deleted by its user":              {group("a", takenAs("g", true, "m"), deleted, userGone), content.StepDelete},
		"deleted before it was ready":      {group("a", takenAs("g", false, "m"), deleted, userGone), content.StepDelete},
		"deleted, being created":           {group("a", markedYes, deleted, userGone), content.StepCreate},
		"deleted, being created, without a finalizer": {group("a", markedYes, deleted, userGone, unfinalized), content.StepCreate},
		"deleted, recorded, still marked":             {group("a", markedYes, takenAs("g", false, "m"), deleted, userGone), content.StepUnmark},
		"deleted before it was asked for":             {group("a", deleted, userGone), content.StepRelease},
		"deleted after a final error":                 {group("a", failedWith("no"), deleted, userGone), content.StepRelease},
		"deleted, to be retained":                     {group("a", takenAs("g", true, "m"), deleted, userGone, retain), content.StepRelease},
		"deleted, its user is there":                  {group("a", takenAs("g", true, "m"), deleted), content.StepNothing},
		"new, deleted, its user is there":             {group("a", deleted), content.StepCreate},
		"new, deleted, without a finalizer":           {group("a", deleted, unfinalized), content.StepNothing},
		"new, its user is going":                      {group("a", userGone), content.StepNothing},
		"asked for, its user is going":                {group("a", markedYes, userGone), content.StepCreate},
		"static, unbound, deleted":                    {group("a", old, unbound, takenAs("g", true, "m"), deleted), content.StepDelete},
		"static, unbound, deleted unseen":             {group("a", old, unbound, deleted), content.StepRelease},
		"static, bound, deleted":                      {group("a", old, takenAs("g", true, "m"), deleted), content.StepNothing},
		"static, bound, deleted by user":              {group("a", old, takenAs("g", true, "m"), deleted, userGone), content.StepDelete},
		"static, bound, retained, deleted":            {group("a", old, takenAs("g", true, "m"), deleted, userGone, retain), content.StepRelease},
	} {
		if got := traits().Next(kind{}.View(row.object)); got != row.want {
			t.Errorf("%s: %s; want %s", name, got, row.want)
		}
	}
}
