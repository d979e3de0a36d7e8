package e2e

import (
	"slices"
	"testing"
)

// test is one of the tests.
type test struct {
	name  string
	short bool // one of those that every change must pass
	run   func(*scene)
}

// together are the tests that run concurrently.
var together = []test{
	{"a pod reads what an earlier pod wrote", true, readsWhatAnEarlierPodWrote},
	{"a volume comes back from a snapshot", true, comesBackFromASnapshot},
	{"a volume is a block device", true, isABlockDevice},
	{"an inline volume lives and dies with its pod", true, livesAndDiesWithItsPod},
	{"a claim is labelled for its node", true, (*scene).isLabelledForItsNode},
	{"the binary is a plugin of kubectl", true, (*scene).isAPluginOfKubectl},
	{"a claim and a mount are traced", true, (*scene).isTraced},
	{"a node changes its own objects only", false, (*scene).refusesObjectsOfOtherNodes},
	{"a generic ephemeral volume is a claim of its pod", false, isAClaimOfItsPod},
	{"each replica of a StatefulSet has its volume", false, isOfOneReplicaForEver},
	{"a volume belongs to the group of its pod", false, belongsToTheGroupOfItsPod},
	{"a volume is cloned while in use", false, isClonedWhileInUse},
	{"a group of volumes comes back from a snapshot", false, comesBackFromASnapshotOfAGroup},
	{"a volume with xfs grows below a writer", false, grows("xfs")},
	{"a volume with btrfs grows below a writer", false, grows("btrfs")},
	{"a volume changes its attributes", false, changesItsAttributes},
	{"a class that cannot be is refused", false, refusesWhatCannotBe},
	{"a source of another namespace needs a grant", false, needsAGrantOfTheOtherNamespace},
	{"a snapshot is restored where it is", false, isRestoredWhereTheSnapshotIs},
}

// alone are the tests that would disturb others.
var alone = []test{
	{"a writer outlives the kubelet", false, (*scene).outlivesTheKubelet},
	{"a pod waits for its drained node", false, (*scene).waitsForItsDrainedNode},
	{"a volume comes back with its node", false, (*scene).comesBackWithItsNode},
	{"a lost node is abandoned", false, (*scene).abandonsALostNode},
	{"pods keep off nodes without the driver", false, (*scene).keepsOffNodesWithoutTheDriver},
	{"the driver is upgraded below writers", false, (*scene).isUpgradedBelowWriters},
	{"the driver dies while it controls", false, (*scene).diesWhileItControls},
	{"the elected process dies while it selects nodes", false, (*scene).losesTheElectedProcess},
	{"a Deployment coordinates the nodes", false, (*scene).isCoordinatedByADeployment},
	{"volumes get their label after an upgrade", false, (*scene).labelsVolumesOnce},
	{"the driver dies while it mounts", false, (*scene).diesWhileItMounts},
	{"the driver dies before the volume is known", false, (*scene).diesBeforeTheVolumeIsKnown},
	{"the leader dies with claims half done", false, (*scene).losesItsLeader},
	{"300 pods start at once", false, (*scene).startAtOnce},
}

// onMachine are the tests of a node that is a machine of its own. Root of a container may
// not grow a mounted ext4.
var onMachine = []test{
	{"a volume with ext4 grows below a writer", true, grows("ext4")},
	{"a volume comes back after a power cut", true, (*scene).comesBackAfterAPowerCut},
}

func TestHoldfast(t *testing.T) {
	s := start(t)
	t.Run("together", func(t *testing.T) {
		for _, c := range chosen(together) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(s.enter(t))
			})
		}
	})
	t.Run("alone", func(t *testing.T) {
		tests := chosen(alone)
		if s.cluster.OnMachines() {
			tests = append(tests, onMachine...)
		}
		for _, c := range tests {
			t.Run(c.name, func(t *testing.T) {
				c.run(s.enter(t))
			})
		}
	})
	s.finish(t)
}

// chosen returns the tests of this run.
func chosen(tests []test) []test {
	return slices.DeleteFunc(slices.Clone(tests), func(c test) bool { return testing.Short() && !c.short })
}
