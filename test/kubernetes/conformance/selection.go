package main

import (
	"fmt"
	"regexp"
	"strings"
)

// pass is one run of the suite with one of the chart's storage classes. The suite derives
// its own classes from it; specs that need a filesystem set the filesystem.
type pass struct {
	name  string
	about string // for the table in the documentation
	class string
	// without are capabilities of the definition that this class lacks.
	without []string
	// labels is ginkgo's label filter.
	labels string
	// only and skip are regular expressions of names.
	only string
	skip []exclusion
	// procs is the number of specs that run at a time; 0 takes the flag's.
	procs int
}

// exclusion says why specs of a name are not run.
type exclusion struct{ names, reason string }

// Features of Kubernetes that the specs say they need. Those of SELinux need
// none where a node does not enforce it.
const (
	features = "Feature: isSubsetOf {VolumeSnapshotDataSource, volumegroupsnapshot, VolumeAttributesClass, VolumeSourceXFS, SELinux}"
	gentle   = "!Disruptive && !Flaky && " + features
)

const otherFilesystem = "the filesystem of the class makes no difference to it"

// passes are what `make conformance` runs.
func passes() []pass {
	return []pass{
		{
			name: "btrfs", about: "btrfs, bound when a pod comes: all that leaves the nodes alone",
			class: "holdfast-local-btrfs", labels: gentle,
			skip: []exclusion{unbound, spread, populator},
		},
		{
			name: "ext4", about: "ext4, bound when a pod comes: the class as the chart makes it",
			class: "holdfast-local", labels: gentle + " && !Serial",
			// The kernel requires CAP_SYS_RESOURCE to expand a mounted ext4, which root in a
			// container lacks (docs/explanation/limitations.md).
			without: []string{"onlineExpansion"},
			skip: []exclusion{
				unbound, spread, populator,
				{`\((xfs|ext4|block volmode)\)|stress|CSI Ephemeral-volume|\] topology|\] capacity`, otherFilesystem},
			},
		},
		{
			name: "immediate", about: "ext4, bound at once, before there is a pod",
			class: "holdfast-local-immediate", labels: gentle, without: []string{"onlineExpansion"},
			// Of thick volumes of 1 GiB, no more at a time than a pool has room for.
			procs: 3, skip: []exclusion{populator, pinned},
			only: `External.Storage.*\] (provisioning|snapshottable|volume-modify|volume-modify-stress|volume-lifecycle-performance|pvc-deletion-performance) `,
		},
		{
			name: "groups", about: "ext4, on one node of the two, as volumes of one group snapshot have to be",
			class: "holdfast-local-one-node", labels: gentle, without: []string{"onlineExpansion"},
			only: `External.Storage.*\] volumegroupsnapshottable`,
		},
		{
			name: "disruptive", about: "ext4; kubelets are stopped, one spec at a time",
			class: "holdfast-local", labels: "Disruptive && !Flaky && " + features, procs: 1,
			skip: []exclusion{{
				"should remount stale subpath bind mount after network filesystem disruption",
				"it is about network filesystems, and calls crictl on the node, which has none",
			}},
		},
	}
}

var (
	unbound = exclusion{
		"multiple pods should modify volumes with a different volumeAttributesClass",
		"it changes claims of no pod, which wait for one with this class",
	}
	// Its ensureTopologyRequirements takes the first topology that has a node.
	pinned = exclusion{
		"with pvc data source",
		"it chooses the node of its pods itself, and a volume that is bound at once may be on any",
	}
	populator = exclusion{
		"with any volume data source",
		"it needs images of two more programs, hello-populator and volume-data-source-validator, which the test cluster has not got",
	}
	spread = exclusion{
		`\] volumegroupsnapshottable`,
		"it takes one snapshot of volumes whose pods are spread over the nodes",
	}
)

// focus is the expression that selects this pass's names for ginkgo.
func (p pass) focus() string {
	if p.only == "" {
		return "External.Storage"
	}
	return p.only
}

// skipped is the expression of those left out, "" if there are none.
func (p pass) skipped() string {
	var all []string
	for _, e := range p.skip {
		all = append(all, e.names)
	}
	return strings.Join(all, "|")
}

// reason says why a pass does not select a spec, or "" if that depends on the spec's
// labels and on the names of the pass.
func (p pass) reason(name string) string {
	for _, e := range p.skip {
		if regexp.MustCompile(e.names).MatchString(name) {
			return e.reason
		}
	}
	return ""
}

// choose finds passes by their names, separated by commas; "" means all.
func choose(all []pass, names string) ([]pass, error) {
	if names == "" {
		return all, nil
	}
	var chosen []pass
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, p := range all {
			if p.name == name {
				chosen, found = append(chosen, p), true
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown pass %q", name)
		}
	}
	return chosen, nil
}
