// Package archtest has the rules of who may import whom, each with its
// reason, and the order of the layers. The tree's shape is in
// docs/explanation/architecture.md.
package archtest

import (
	"path"
	"slices"
	"strings"
)

// Layers lists the rooms of the tree from the bottom up, module-relative. A room
// is the package of that name and those below it; with a final slash it is those
// below alone. The longest name that fits a package is its room.
func Layers() [][]string {
	return [][]string{
		{
			"internal/concurrency", "internal/connlimit", "internal/durable", "internal/failpoint", "internal/fuzztest",
			"internal/logformat", "internal/metrics", "internal/progress", "internal/quantity", "internal/redact",
			"internal/sample", "internal/spelling", "internal/tartree", "internal/tracing", "internal/verify",
		},
		{"internal/backend"}, // the seam
		{"internal/linux"},
		{
			"internal/claim", "internal/csi/message", "internal/csi/operations", "internal/csi/statuscode",
			"internal/grpcserver", "internal/step", "internal/telemetry",
		},
		{"internal/csiproxy", "proto/csiproxy"},
		{"internal/unixsocket"},
		{"internal/backend/"},
		{"internal/node"},
		{"internal/csi/client", "internal/lifecycle"},
		{"internal/csi/call", "internal/csi/server", "internal/host", "internal/kube", "internal/policy"},
		{"internal/bugreport", "internal/export", "internal/top", "internal/why"},
		{"internal/status"},
		{"internal/cli", "internal/csiproxy/cli"},
		{"cmd"},
	}
}

// LayerOf returns the room of a package and the number of its layer, counted
// from the bottom.
func LayerOf(name string) (room string, layer int, ok bool) {
	for i, rooms := range Layers() {
		for _, r := range rooms {
			// within ignores a final slash, which excludes the package of that name.
			if within(name, r) && name+"/" != r && len(r) > len(room) {
				room, layer, ok = r, i, true
			}
		}
	}
	return room, layer, ok
}

// IsSimulator reports whether a package is not part of the product: simulators,
// fakes, suites and helpers of tests, by their names.
func IsSimulator(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(element string) bool {
		return strings.HasSuffix(element, "test")
	}) || within(name, "simulation") || within(name, "cmd/ec2emu") || within(name, "test") || within(name, "deploy") ||
		within(name, "tools")
}

// Arrow is an import from one room into another.
type Arrow struct{ From, To string }

// Upward returns the arrows of a package into rooms of higher layers, each once.
func Upward(name string, imports []string) (arrows []Arrow) {
	_, layer, ok := LayerOf(name)
	if !ok || IsSimulator(name) {
		return nil
	}
	for _, imported := range imports {
		room, above, ok := LayerOf(imported)
		arrow := Arrow{name, path.Clean(room)}
		if ok && above > layer && !slices.Contains(arrows, arrow) {
			arrows = append(arrows, arrow)
		}
	}
	return arrows
}

// within reports whether a package is the named one or below it.
func within(name, parent string) bool {
	return name == parent || parent == "" || strings.HasPrefix(name, strings.TrimSuffix(parent, "/")+"/")
}
