package groupsnapshot

import (
	"testing"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
)

func TestNext(t *testing.T) {
	old := existing("g", "m")
	for name, row := range map[string]struct {
		content *groupv1.VolumeGroupSnapshotContent
		want    step
	}{
		"new":                                    {group("a"), stepCut},
		"asked for, no answer":                   {group("a", markedYes), stepCut},
		"failed":                                 {group("a", failedWith("no")), stepCut},
		"recorded, marker left":                  {group("a", markedYes, cutAs("g", false, "m")), stepUnmark},
		"recorded and ready, marker left":        {group("a", markedYes, cutAs("g", true, "m")), stepUnmark},
		"not ready":                              {group("a", cutAs("g", false, "m")), stepLook},
		"ready":                                  {group("a", cutAs("g", true, "m")), stepNothing},
		"static, new":                            {group("a", old), stepLook},
		"static, not ready":                      {group("a", old, cutAs("g", false, "m")), stepLook},
		"static, ready":                          {group("a", old, cutAs("g", true, "m")), stepNothing},
		"deleted by its user":                    {group("a", cutAs("g", true, "m"), deleted, userGone), stepDelete},
		"deleted before it was ready":            {group("a", cutAs("g", false, "m"), deleted, userGone), stepDelete},
		"deleted, being created":                 {group("a", markedYes, deleted, userGone), stepCut},
		"deleted, being created, cannot be held": {group("a", markedYes, deleted, userGone, unfinalized), stepCut},
		"deleted, recorded, marker left":         {group("a", markedYes, cutAs("g", false, "m"), deleted, userGone), stepUnmark},
		"deleted before it was asked for":        {group("a", deleted, userGone), stepRelease},
		"deleted after a final error":            {group("a", failedWith("no"), deleted, userGone), stepRelease},
		"deleted, to be retained":                {group("a", cutAs("g", true, "m"), deleted, userGone, retain), stepRelease},
		"deleted, its user is there":             {group("a", cutAs("g", true, "m"), deleted), stepNothing},
		"new, deleted, its user is there":        {group("a", deleted), stepCut},
		"new, deleted, cannot be held":           {group("a", deleted, unfinalized), stepNothing},
		"new, its user is going":                 {group("a", userGone), stepNothing},
		"asked for, its user is going":           {group("a", markedYes, userGone), stepCut},
		"static, unbound, deleted":               {group("a", old, unbound, cutAs("g", true, "m"), deleted), stepDelete},
		"static, unbound, deleted unseen":        {group("a", old, unbound, deleted), stepRelease},
		"static, bound, deleted":                 {group("a", old, cutAs("g", true, "m"), deleted), stepNothing},
		"static, bound, deleted by user":         {group("a", old, cutAs("g", true, "m"), deleted, userGone), stepDelete},
		"static, bound, retained, deleted":       {group("a", old, cutAs("g", true, "m"), deleted, userGone, retain), stepRelease},
	} {
		if got := next(row.content); got != row.want {
			t.Errorf("%s: %s; want %s", name, got, row.want)
		}
	}
}
