package status

import (
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// A driver that is registered and does not answer is not one that is not registered: the
// page and `holdfast why` give the same reason.
func TestHostReader_aDriverThatDoesNotAnswerIsRegistered(t *testing.T) {
	m := newMirror()
	m.setDrivers(driversOfHost([]api.Driver{
		{Name: "hangs.example", Instances: []api.DriverInstance{{State: "NotReady", Serving: true, Unready: true}, {State: "failed", Error: "an older process"}}},
		{Name: "gone.example", Instances: []api.DriverInstance{{State: "failed"}}},
		{Name: "none.example"},
	}))
	names, err := hostReader{reader: reader{mirror: m}}.Registered(t.Context())
	if err != nil || len(names) != 1 || names[0] != "hangs.example" {
		t.Errorf("registered are %v, %v", names, err)
	}
	if d := m.knownDrivers()[1]; d.Name != "hangs.example" || d.Healthy || d.State != "NotReady" || d.Error != "" {
		t.Errorf("the page shows %+v", d)
	}
}
