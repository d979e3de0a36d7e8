//go:build windows

package upstream

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1alpha1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1beta1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1beta2"
	"github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1beta3"
)

// disks are the versions of the group. Names that a version has not are "".
var disks = []struct {
	version                      string
	open                         func(*testing.T) any
	id                           string // the field of a disk
	stats, size                  string
	setState, getState, isOnline string
	ids, byName                  bool
}{
	{"v1alpha1", func(t *testing.T) any { return opened(t, v1alpha1.NewClient) }, "diskID", "", "", "", "", "", false, true},
	{"v1beta1", func(t *testing.T) any { return opened(t, v1beta1.NewClient) }, "diskID", "DiskStats", "diskSize", "", "", "", true, false},
	{"v1beta2", func(t *testing.T) any { return opened(t, v1beta2.NewClient) }, "diskID", "DiskStats", "diskSize",
		"SetAttachState", "GetAttachState", "isOnline", true, false},
	{"v1beta3", func(t *testing.T) any { return opened(t, v1beta3.NewClient) }, "disk_number", "GetDiskStats",
		"total_bytes", "SetDiskState", "GetDiskState", "is_online", true, false},
	{"v1", func(t *testing.T) any { return opened(t, v1.NewClient) }, "disk_number", "GetDiskStats", "total_bytes",
		"SetDiskState", "GetDiskState", "is_online", true, false},
}

const gibi = 1 << 30

func TestDisk(t *testing.T) {
	for i, d := range disks {
		t.Run(d.version, func(t *testing.T) {
			client := d.open(t)
			serial, page83 := fmt.Sprintf("vol0123456789abcdef%d_00000001.", i), fmt.Sprintf("6e7a%012d", i)
			number := addDisk(t, fields{
				"Serial": serial, "Page83": page83, "Size": 4 * gibi, "Bus": 17, "Offline": true, "ReadOnly": true,
				"Location": fields{"Port": 1, "Path": 0, "Target": 2, "LUN": i},
			})
			disk := fields{d.id: strconv.FormatInt(number, 10)}
			must(t, client, "Rescan", nil)
			location := must(t, client, "ListDiskLocations", nil)["disk_locations"].(map[string]any)[strconv.FormatInt(number, 10)]
			if got := fmt.Sprint(location); got != fmt.Sprintf("map[Adapter:1 Bus:0 LUNID:%d Target:2]", i) {
				t.Errorf("the location is %s", got)
			}
			if d.ids {
				ids := fmt.Sprint(must(t, client, "ListDiskIDs", nil)["diskIDs"].(map[string]any)[strconv.FormatInt(number, 10)])
				if !strings.Contains(ids, serial) || !strings.Contains(ids, page83) {
					t.Errorf("the IDs are %s", ids)
				}
			}
			if d.byName {
				if got := must(t, client, "GetDiskNumberByName", fields{"disk_name": page83}); got.number(t, "disk_number") != number {
					t.Errorf("by name it is %v", got)
				}
			}
			if d.stats != "" {
				if got := must(t, client, d.stats, disk).number(t, d.size); got != 4*gibi {
					t.Errorf("its size is %d", got)
				}
			}
			for range 2 { // partitioned is fine
				must(t, client, "PartitionDisk", disk)
			}
			if d.setState == "" {
				return
			}
			online := func() bool { return must(t, client, d.getState, disk)[d.isOnline].(bool) }
			if !online() {
				t.Error("it is not online after it was partitioned")
			}
			for _, want := range []bool{false, false, true, true} {
				must(t, client, d.setState, fields{d.id: disk[d.id], d.isOnline: want})
				if online() != want {
					t.Errorf("it is not online: %v", want)
				}
			}
		})
	}
}

// A disk with data is never partitioned, whichever version asks.
func TestDisk_keepsWhatIsOnIt(t *testing.T) {
	for _, d := range disks {
		t.Run(d.version, func(t *testing.T) {
			client := d.open(t)
			number := addDisk(t, fields{"Serial": "used", "Size": gibi, "Bytes": map[string]string{"4096": "68656c6c6f"}})
			_, err := call(t, client, "PartitionDisk", fields{d.id: strconv.FormatInt(number, 10)})
			if err == nil || !strings.Contains(err.Error(), "FailedPrecondition") {
				t.Errorf("%v, want FailedPrecondition", err)
			}
			if _, err := call(t, client, "PartitionDisk", fields{d.id: "4000000"}); err == nil || !strings.Contains(err.Error(), "NotFound") {
				t.Errorf("a disk that is none: %v, want NotFound", err)
			}
		})
	}
}

func TestCheck_theMachineIsSound(t *testing.T) {
	simulated(t, http.MethodGet, "/check", nil, nil)
}
