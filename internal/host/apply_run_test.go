package host

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
)

// A run refuses objects that would wait after Apply, and correct objects whose driver
// is missing.
func TestApply_forARunRefusesWhatWouldWait(t *testing.T) {
	for name, c := range map[string]struct{ manifest, want string }{
		"a class that is missing": {aClaim, `StorageClass "c" does not exist`},
		"a claim that is missing": {aPod, `PersistentVolumeClaim "default/data" does not exist`},
		"a driver that is absent": {aClass + "---\n" + aClaim + "---\n" + aPod, "not registered: drivers here: none"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newApplier(t)
			h.plugins = plugins.New(slog.New(slog.DiscardHandler))
			before := version(t, h)
			_, err := h.Apply(context.Background(), []manifest.File{{Name: "m.yaml", Data: []byte(c.manifest)}}, api.ApplyOptions{Run: true})
			if !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "m.yaml") != 1 {
				t.Errorf("got %v", err)
			}
			if version(t, h) != before {
				t.Error("something was stored")
			}
			if _, err := h.try(c.manifest); err != nil {
				t.Errorf("a host lets it wait: %v", err)
			}
		})
	}
}
