package cli

import (
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// What `get drivers` calls a driver, `describe driver` knows, also a file that
// is refused and so has no name.
func TestChooseDrivers_takesTheNamesThatAreShown(t *testing.T) {
	drivers := []api.Driver{{Name: "d.example"}, {Unit: &api.DriverUnit{File: "broken.yaml", State: "Refused", Error: "it is not a regular file"}}, {}}
	for _, driver := range drivers[:2] {
		chosen, err := chooseDrivers(drivers, []string{driverRows(driver, false, time.Now())[0][0]})
		if err != nil || len(chosen) != 1 || chosen[0].Name != driver.Name {
			t.Errorf("%+v: %+v, %v", driver, chosen, err)
		}
	}
	if chosen, err := chooseDrivers(drivers, []string{""}); err == nil {
		t.Errorf("no name is the name of %+v", chosen)
	}
}
