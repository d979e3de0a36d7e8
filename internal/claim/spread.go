package claim

import (
	"hash/fnv"
	"math"
	"strconv"
	"strings"
)

// Spread returns the index of the topology, out of n, that a claim without a
// selected node prefers. The claims of a StatefulSet, named
// <template>-<set>-<ordinal>, rotate through the topologies, and all claims of one
// replica the same one. The hash equals external-provisioner's to the bit, so that a
// set that external-provisioner began continues here. n must be above zero.
func Spread(claimName string, n int) int {
	hash, index := spreadHash(claimName)
	return int((hash + index) % uint32(min(n, math.MaxInt32))) //nolint:gosec // n is above zero and bounded here; the sum wraps by design
}

// spreadHash takes a name without a 32 bit ordinal at its end as a whole.
func spreadHash(claimName string) (hash, index uint32) {
	text := claimName
	if dash := strings.LastIndexByte(claimName, '-'); dash >= 0 {
		if ordinal, err := strconv.ParseUint(claimName[dash+1:], 10, 32); err == nil {
			index = uint32(ordinal)
			text = claimName[:dash]
			text = text[strings.LastIndexByte(text, '-')+1:]
		}
	}
	sum := fnv.New32()
	_, _ = sum.Write([]byte(text)) // a hash never fails
	return sum.Sum32(), index
}
