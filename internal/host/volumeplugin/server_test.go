package volumeplugin

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// waitingHost has volumes that do not come before the caller's context ends.
type waitingHost struct{ Host }

func (waitingHost) Hold(ctx context.Context, _ api.HoldRequest) (api.HoldAnswer, error) {
	<-ctx.Done()
	return api.HoldAnswer{}, errors.New("the size is above the maximum")
}

// Podman discards the reason of a Mount that is answered after its timeout.
func TestMount_givesTheReasonBeforePodmanLeaves(t *testing.T) {
	opened, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		plugin := &Plugin{Host: waitingHost{}, Store: opened, Logger: slog.New(slog.DiscardHandler)}
		answer := httptest.NewRecorder()
		began := time.Now()
		plugin.Handler().ServeHTTP(answer, httptest.NewRequest("POST", "/VolumeDriver.Mount", strings.NewReader(`{"Name":"web","ID":"1"}`)))
		if took := time.Since(began); took >= time.Minute {
			t.Errorf("the answer takes %v", took)
		}
		if !strings.Contains(answer.Body.String(), "above the maximum") {
			t.Errorf("the answer is %s", answer.Body)
		}
	})
}

// The guide's timeout of Podman is the one that a Mount is bounded by.
func TestPodmanTimeout_isTheGuides(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guides/podman.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "volume_plugin_timeout = 60\n") || PodmanTimeout != time.Minute {
		t.Errorf("the guide and PodmanTimeout (%v) differ", PodmanTimeout)
	}
}
