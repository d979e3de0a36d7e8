package local

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// FuzzRecord reads any bytes as a record of each kind. What is accepted is of the ID that
// was asked for and within the limits; what is not is an error of a known kind.
func FuzzRecord(f *testing.F) {
	volume := idOf(volumePrefix, "a")
	f.Add(`{"version":1,"id":"`+volume+`","state":"ready","name":"a","size":1048576,"provisioning":"thin","sectorSize":4096}`, volume)
	f.Add(`{"version":1,"id":"`+volume+`","state":"ready","name":"a","size":-1,"provisioning":"thin","sectorSize":4096,"copy":{"offset":-1}}`, volume)
	f.Add(`{"version":2,"id":{}}`, volume)
	f.Add(`{"version":1,"id":"`+idOf(snapshotPrefix, "s")+`","state":"creating","name":"s","size":1,"sectorSize":512,"copy":{"offset":9223372036854775807}}`, idOf(snapshotPrefix, "s"))
	f.Add(`{"version":1,"id":"`+idOf(groupPrefix, "g")+`","state":"deleting","name":"g","sourceIDs":null}`, idOf(groupPrefix, "g"))
	f.Add(`{"version":1e400}`, volume)
	f.Add(`null`, "")
	f.Add(strings.Repeat(`{"copy":`, 3000), volume)
	f.Fuzz(func(t *testing.T, text, id string) {
		fuzztest.Cost{}.Within(t, len(text), func() {
			v, err := decode[volumeRecord]([]byte(text), id)
			if checkRecordError(t, err); err == nil {
				if v.ID != id || v.Size <= 0 || v.Size > maximumSize {
					t.Errorf("%+v is accepted for %q", v, id)
				}
				_ = v.volume(nil)
			}
			s, err := decode[snapshotRecord]([]byte(text), id)
			if checkRecordError(t, err); err == nil {
				if s.ID != id || s.Size <= 0 || s.Size > maximumSize {
					t.Errorf("%+v is accepted for %q", s, id)
				}
				_ = s.snapshot(nil)
			}
			g, err := decode[groupRecord]([]byte(text), id)
			if checkRecordError(t, err); err == nil && g.ID != id {
				t.Errorf("%+v is accepted for %q", g, id)
			}
		})
	})
}

func checkRecordError(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, backend.ErrDataLoss) && !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("an error of no kind: %v", err)
	}
}
