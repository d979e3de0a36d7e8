package snapshot

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

func TestNext(t *testing.T) {
	for name, row := range map[string]struct {
		object *snapshotv1.VolumeSnapshotContent
		want   content.Step
	}{
		"new":                               {dynamic("a"), content.StepCreate},
		"asked for, no answer":              {dynamic("a", markedYes), content.StepCreate},
		"failed":                            {dynamic("a", failedWith("no")), content.StepCreate},
		"recorded, still marked":            {dynamic("a", markedYes, takenAs("s", false)), content.StepUnmark},
		"recorded and ready, still marked":  {dynamic("a", markedYes, takenAs("s", true)), content.StepUnmark},
		"not ready":                         {dynamic("a", takenAs("s", false)), content.StepPoll},
		"ready":                             {dynamic("a", takenAs("s", true)), content.StepNothing},
		"static, new":                       {staticFor("a", "s"), content.StepInspect},
		"static, not ready":                 {staticFor("a", "s", takenAs("s", false)), content.StepInspect},
		"static, ready":                     {staticFor("a", "s", takenAs("s", true)), content.StepNothing},
		"member, new":                       {dynamic("a", inGroup), content.StepAwait},
		"member, recorded":                  {dynamic("a", inGroup, takenAs("s", false), ofGroup("g")), content.StepInspect},
		"member, ready":                     {dynamic("a", inGroup, takenAs("s", true), ofGroup("g")), content.StepNothing},
		"member by status":                  {dynamic("a", takenAs("s", false), ofGroup("g")), content.StepInspect},
		"deleted by its user":               {dynamic("a", takenAs("s", true), deleted, userGone), content.StepDelete},
		"deleted, being created":            {dynamic("a", markedYes, deleted, userGone), content.StepCreate},
		"deleted, recorded, still marked":   {dynamic("a", markedYes, takenAs("s", false), deleted, userGone), content.StepUnmark},
		"deleted before it was asked for":   {dynamic("a", deleted, userGone), content.StepRelease},
		"deleted after a final error":       {dynamic("a", failedWith("no"), deleted, userGone), content.StepRelease},
		"deleted, to be retained":           {dynamic("a", takenAs("s", true), deleted, userGone, retain), content.StepRelease},
		"deleted, a member":                 {dynamic("a", inGroup, takenAs("s", true), ofGroup("g"), deleted, userGone), content.StepRelease},
		"deleted, a member by status":       {dynamic("a", takenAs("s", true), ofGroup("g"), deleted, userGone), content.StepRelease},
		"deleted, its user is there":        {dynamic("a", takenAs("s", true), deleted), content.StepNothing},
		"new, deleted, its user is there":   {dynamic("a", deleted), content.StepCreate},
		"new, deleted, without a finalizer": {dynamic("a", deleted, unfinalized), content.StepNothing},
		"new, its user is going":            {dynamic("a", userGone), content.StepNothing},
		"asked for, its user is going":      {dynamic("a", markedYes, userGone), content.StepCreate},
		"static, unbound, deleted":          {staticFor("a", "s", unbound, takenAs("s", true), deleted), content.StepDelete},
		"static, unbound, deleted unseen":   {staticFor("a", "s", unbound, deleted), content.StepRelease},
		"static, bound, deleted":            {staticFor("a", "s", takenAs("s", true), deleted), content.StepNothing},
		"static, bound, deleted by user":    {staticFor("a", "s", takenAs("s", true), deleted, userGone), content.StepDelete},
		"static, bound, retained, deleted":  {staticFor("a", "s", takenAs("s", true), deleted, userGone, retain), content.StepRelease},
		"deleted and forgotten":             {dynamic("a", forgotten, deleted, userGone), content.StepRelease},
	} {
		if got := traits().Next(kind{}.View(row.object)); got != row.want {
			t.Errorf("%s: %s; want %s", name, got, row.want)
		}
	}
}
