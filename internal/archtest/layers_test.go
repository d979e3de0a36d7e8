package archtest

import (
	"slices"
	"strings"
	"testing"
)

func TestLayers_noArrowRunsUpward(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if _, _, ok := LayerOf(name); !ok && !IsSimulator(name) {
			t.Errorf("%s is in no layer: add it to Layers", name)
		}
		for _, arrow := range Upward(name, relative(p.Imports)) {
			t.Errorf("%s imports a package of %s, which is in a higher layer", arrow.From, arrow.To)
		}
	}
}

// relative returns the imports of this module without its path.
func relative(imports []string) (names []string) {
	for _, imported := range imports {
		if name, ok := strings.CutPrefix(imported, module); ok {
			names = append(names, name)
		}
	}
	return names
}

func TestLayerOf_takesTheLongestName(t *testing.T) {
	for name, want := range map[string]string{
		"internal/backend": "internal/backend", "internal/backend/local": "internal/backend/", "internal/backend/ebs/cloud": "internal/backend/",
		"internal/csiproxy/cli": "internal/csiproxy/cli", "internal/csiproxy/climb": "internal/csiproxy", "cmd/holdfast": "cmd", "internal/nowhere": "",
	} {
		if room, _, ok := LayerOf(name); room != want || ok != (want != "") {
			t.Errorf("%s: room %q, %t", name, room, ok)
		}
	}
}

func TestUpward_countsEachRoomOnce(t *testing.T) {
	got := Upward("internal/backend/local", []string{"internal/node/a", "internal/node/b", "internal/concurrency", "internal/backend", "internal/host/store"})
	if want := []Arrow{{"internal/backend/local", "internal/node"}, {"internal/backend/local", "internal/host"}}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	if got := Upward("internal/node/nodetest", []string{"internal/cli"}); got != nil {
		t.Errorf("a helper of tests: %v", got)
	}
}
