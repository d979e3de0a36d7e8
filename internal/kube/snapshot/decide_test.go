package snapshot

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
)

func TestNext(t *testing.T) {
	for name, row := range map[string]struct {
		content *snapshotv1.VolumeSnapshotContent
		want    step
	}{
		"new":                              {dynamic("a"), stepCut},
		"asked for, no answer":             {dynamic("a", markedYes), stepCut},
		"failed":                           {dynamic("a", failedWith("no")), stepCut},
		"recorded, marker left":            {dynamic("a", markedYes, cutAs("s", false)), stepUnmark},
		"recorded and ready, marker left":  {dynamic("a", markedYes, cutAs("s", true)), stepUnmark},
		"not ready":                        {dynamic("a", cutAs("s", false)), stepPoll},
		"ready":                            {dynamic("a", cutAs("s", true)), stepNothing},
		"static, new":                      {staticFor("a", "s"), stepLook},
		"static, not ready":                {staticFor("a", "s", cutAs("s", false)), stepLook},
		"static, ready":                    {staticFor("a", "s", cutAs("s", true)), stepNothing},
		"member, new":                      {dynamic("a", inGroup), stepAwait},
		"member, recorded":                 {dynamic("a", inGroup, cutAs("s", false), ofGroup("g")), stepLook},
		"member, ready":                    {dynamic("a", inGroup, cutAs("s", true), ofGroup("g")), stepNothing},
		"member by status":                 {dynamic("a", cutAs("s", false), ofGroup("g")), stepLook},
		"deleted by its user":              {dynamic("a", cutAs("s", true), deleted, userGone), stepDelete},
		"deleted, being created":           {dynamic("a", markedYes, deleted, userGone), stepCut},
		"deleted, recorded, marker left":   {dynamic("a", markedYes, cutAs("s", false), deleted, userGone), stepUnmark},
		"deleted before it was asked for":  {dynamic("a", deleted, userGone), stepRelease},
		"deleted after a final error":      {dynamic("a", failedWith("no"), deleted, userGone), stepRelease},
		"deleted, to be retained":          {dynamic("a", cutAs("s", true), deleted, userGone, retain), stepRelease},
		"deleted, a member":                {dynamic("a", inGroup, cutAs("s", true), ofGroup("g"), deleted, userGone), stepRelease},
		"deleted, a member by status":      {dynamic("a", cutAs("s", true), ofGroup("g"), deleted, userGone), stepRelease},
		"deleted, its user is there":       {dynamic("a", cutAs("s", true), deleted), stepNothing},
		"new, deleted, its user is there":  {dynamic("a", deleted), stepCut},
		"new, deleted, cannot be held":     {dynamic("a", deleted, unfinalized), stepNothing},
		"new, its user is going":           {dynamic("a", userGone), stepNothing},
		"asked for, its user is going":     {dynamic("a", markedYes, userGone), stepCut},
		"static, unbound, deleted":         {staticFor("a", "s", unbound, cutAs("s", true), deleted), stepDelete},
		"static, unbound, deleted unseen":  {staticFor("a", "s", unbound, deleted), stepRelease},
		"static, bound, deleted":           {staticFor("a", "s", cutAs("s", true), deleted), stepNothing},
		"static, bound, deleted by user":   {staticFor("a", "s", cutAs("s", true), deleted, userGone), stepDelete},
		"static, bound, retained, deleted": {staticFor("a", "s", cutAs("s", true), deleted, userGone, retain), stepRelease},
		"deleted and forgotten":            {dynamic("a", forgotten, deleted, userGone), stepRelease},
	} {
		if got := next(row.content); got != row.want {
			t.Errorf("%s: %s; want %s", name, got, row.want)
		}
	}
}
