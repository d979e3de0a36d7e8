package client

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csi/operations"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestOperations_areTheDrivers(t *testing.T) {
	driver := csidriver.New("d.example")
	driver.Operations = func() []*operations.Operation {
		return []*operations.Operation{
			{Call: "CreateSnapshot", Object: "snapshot-1", Doing: "uploading", Started: 5e9, Done: 45, Total: 100, Unit: operations.Unit_PERCENT},
			{Object: "hostile", Doing: strings.Repeat("ä", 1<<20), Done: -1, Total: -5},
		}
	}
	path := socket(t)
	t.Cleanup(driver.Serve(listen(t, path)))
	got, err := dial(t, path, Options{}).Operations(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	want := progress.Operation{Call: "CreateSnapshot", Object: "snapshot-1", Doing: "uploading", Started: time.Unix(5, 0), Done: 45, Total: 100, Unit: progress.Percent}
	if got[0] != want {
		t.Errorf("the first is %+v, want %+v", got[0], want)
	}
	if got[1].Done != 0 || got[1].Total != 0 {
		t.Errorf("numbers below 0 are kept: %+v", got[1])
	}
	if len(got[1].Doing) != longestDoing {
		t.Errorf("what it does has %d bytes", len(got[1].Doing))
	}
}

// A driver that lacks the service is not asked again, until another one may be at its
// socket.
func TestOperations_ofADriverThatLacksThemAreAskedForOnce(t *testing.T) {
	path := socket(t)
	stop := csidriver.New("d.example").Serve(listen(t, path))
	gone := make(chan struct{}, 1)
	client := dial(t, path, Options{Disconnected: func() { gone <- struct{}{} }})
	for range 3 {
		if _, err := client.Operations(t.Context()); !Lacks(err) {
			t.Fatalf("got %v, want UNIMPLEMENTED", err)
		}
	}
	client.mu.Lock()
	remembered := client.cache.lacksOperations
	client.mu.Unlock()
	if !remembered {
		t.Error("the client does not remember that the driver lacks it")
	}
	stop()
	<-gone
	newer := csidriver.New("d.example")
	newer.Operations = func() []*operations.Operation { return []*operations.Operation{{Object: "one"}} }
	t.Cleanup(newer.Serve(listen(t, path)))
	for {
		got, err := client.Operations(t.Context())
		if err == nil && len(got) == 1 {
			return
		}
		if Lacks(err) {
			t.Fatal("the client remembers it of the driver before")
		}
	}
}
