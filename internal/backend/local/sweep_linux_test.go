package local

import "slices"

// sweepCovers reports whether a sweep runs an operation on a filesystem. On xfs,
// which shares blocks, it runs all of them. On ext4 it runs those that copy;
// the others run there with the build tag testall.
func sweepCovers(fsType, operation string) bool {
	copies := []string{
		"clone", "clone thin", "clone thick", "restore", "restore thick",
		"snapshot", "snapshot of thick", "snapshot of mounted", "snapshot of frozen", "group",
	}
	return testAll || fsType != "ext4" || slices.Contains(copies, operation)
}
