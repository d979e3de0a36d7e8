//go:build windows

package upstream

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/groups/disk/v1"
	filesystemv1 "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1"
	v1 "github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1alpha1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1beta1"
	"github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1beta2"
	"github.com/kubernetes-csi/csi-proxy/client/groups/volume/v1beta3"
	"github.com/kubernetes-csi/csi-proxy/client/groups/volume/v2alpha1"
)

// volumes are the versions of the group. Names that a version has not are "".
var volumes = []struct {
	version                string
	open                   func(*testing.T) any
	disk, path, size       string // fields
	unmount                string
	stats, total           string
	diskOf, diskNumber     string
	at, mount              string
	cache, closest, number bool
}{
	{version: "v1alpha1", open: func(t *testing.T) any { return opened(t, v1alpha1.NewClient) }, disk: "disk_id",
		path: "path", size: "size", unmount: "DismountVolume"},
	{
		version: "v1beta1", open: func(t *testing.T) any { return opened(t, v1beta1.NewClient) }, disk: "disk_id",
		path: "path", size: "size", unmount: "DismountVolume",
		stats: "VolumeStats", total: "volumeSize", diskOf: "GetVolumeDiskNumber", diskNumber: "diskNumber",
		at: "GetVolumeIDFromMount", mount: "mount",
	},
	{
		version: "v1beta2", open: func(t *testing.T) any { return opened(t, v1beta2.NewClient) }, disk: "disk_id",
		path: "path", size: "size", unmount: "DismountVolume",
		stats: "VolumeStats", total: "volumeSize", diskOf: "GetVolumeDiskNumber", diskNumber: "diskNumber",
		at: "GetVolumeIDFromMount", mount: "mount", cache: true,
	},
	{
		version: "v1beta3", open: func(t *testing.T) any { return opened(t, v1beta3.NewClient) }, disk: "disk_number",
		path: "target_path", size: "size_bytes", unmount: "UnmountVolume",
		stats: "GetVolumeStats", total: "total_bytes", diskOf: "GetDiskNumberFromVolumeID", diskNumber: "disk_number",
		at: "GetVolumeIDFromTargetPath", mount: "target_path", cache: true,
	},
	{
		version: "v1", open: func(t *testing.T) any { return opened(t, v1.NewClient) }, disk: "disk_number",
		path: "target_path", size: "size_bytes", unmount: "UnmountVolume",
		stats: "GetVolumeStats", total: "total_bytes", diskOf: "GetDiskNumberFromVolumeID", diskNumber: "disk_number",
		at: "GetVolumeIDFromTargetPath", mount: "target_path", cache: true,
	},
	{
		version: "v2alpha1", open: func(t *testing.T) any { return opened(t, v2alpha1.NewClient) }, disk: "disk_number",
		path: "target_path", size: "size_bytes", unmount: "UnmountVolume",
		stats: "GetVolumeStats", total: "total_bytes", diskOf: "GetDiskNumberFromVolumeID", diskNumber: "disk_number",
		at: "GetVolumeIDFromTargetPath", mount: "target_path", cache: true, closest: true,
	},
}

// The life of a volume, in the order of the calls of drivers in the field.
func TestVolume(t *testing.T) {
	for _, v := range volumes {
		t.Run(v.version, func(t *testing.T) {
			client, diskClient, files := v.open(t), opened(t, diskv1.NewClient), opened(t, filesystemv1.NewClient)
			disk := addDisk(t, fields{"Serial": "volume-" + v.version, "Size": 4 * gibi})
			number := strconv.FormatInt(disk, 10)
			must(t, diskClient, "PartitionDisk", fields{"disk_number": number})
			must(t, diskClient, "SetDiskState", fields{"disk_number": number, "is_online": true})
			ids := must(t, client, "ListVolumesOnDisk", fields{v.disk: number}).list(t, "volume_ids")
			if len(ids) != 1 || !strings.HasPrefix(fmt.Sprint(ids[0]), `\\?\Volume{`) || !strings.HasSuffix(fmt.Sprint(ids[0]), `}\`) {
				t.Fatalf("the volumes are %v", ids)
			}
			volume := fields{"volume_id": ids[0]}
			formatted := func() bool { return must(t, client, "IsVolumeFormatted", volume)["formatted"].(bool) }
			if formatted() {
				t.Error("it is formatted before it was")
			}
			must(t, client, "FormatVolume", volume)
			if !formatted() {
				t.Error("it is not formatted after it was")
			}
			if _, err := call(t, client, "FormatVolume", volume); err == nil {
				t.Error("a filesystem is formatted over")
			}
			staging := kubelet + `\plugins\volume-` + v.version
			must(t, files, "Mkdir", fields{"path": staging})
			for range 2 { // mounted is fine
				must(t, client, "MountVolume", fields{"volume_id": ids[0], v.path: staging})
			}
			if v.at != "" {
				if got := must(t, client, v.at, fields{v.mount: staging})["volume_id"]; got != ids[0] {
					t.Errorf("at the staging path is %v", got)
				}
			}
			if v.closest {
				if got := must(t, client, "GetClosestVolumeIDFromTargetPath", fields{"target_path": staging})["volume_id"]; got != ids[0] {
					t.Errorf("closest to the staging path is %v", got)
				}
			}
			if v.diskOf != "" {
				if got := must(t, client, v.diskOf, volume).number(t, v.diskNumber); got != disk {
					t.Errorf("its disk is %d, want %d", got, disk)
				}
			}
			if v.stats != "" {
				before := must(t, client, v.stats, volume).number(t, v.total)
				simulated(t, http.MethodPost, "/disks/"+number+"/grow", fields{"Size": 8 * gibi}, nil)
				must(t, diskClient, "Rescan", nil)
				must(t, client, "ResizeVolume", fields{"volume_id": ids[0], v.size: "0"})
				if after := must(t, client, v.stats, volume).number(t, v.total); before >= 4*gibi || after <= 4*gibi || after >= 8*gibi {
					t.Errorf("it grew from %d to %d bytes", before, after)
				}
				must(t, client, "ResizeVolume", fields{"volume_id": ids[0], v.size: strconv.Itoa(gibi)}) // never smaller, and no error
			}
			if _, err := call(t, client, "ResizeVolume", fields{"volume_id": ids[0], v.size: "-1"}); err == nil ||
				!strings.Contains(err.Error(), "InvalidArgument") {
				t.Errorf("a negative size: %v", err)
			}
			if v.cache {
				must(t, client, "WriteVolumeCache", volume)
			}
			for range 2 { // unmounted is fine
				must(t, client, v.unmount, fields{"volume_id": ids[0], v.path: staging})
			}
			must(t, files, "Rmdir", fields{"path": staging, "force": true})
			if v.diskOf != "" { // drivers ask after the unmount
				if got := must(t, client, v.diskOf, volume).number(t, v.diskNumber); got != disk {
					t.Errorf("its disk is %d after the unmount, want %d", got, disk)
				}
			}
			must(t, diskClient, "SetDiskState", fields{"disk_number": number, "is_online": false})
		})
	}
}

// Drivers in the field match this text.
func TestVolume_saysThatNothingIsMountedInTheWordsThatDriversMatch(t *testing.T) {
	files := opened(t, filesystemv1.NewClient)
	empty := kubelet + `\plugins\nothing-mounted`
	must(t, files, "Mkdir", fields{"path": empty})
	for _, v := range volumes {
		if v.at == "" {
			continue
		}
		client := v.open(t)
		for _, path := range []string{empty, kubelet + `\plugins\missing`} {
			_, err := call(t, client, v.at, fields{v.mount: path})
			if err == nil || !strings.Contains(err.Error(), "because it does not exist") || !strings.Contains(err.Error(), "NotFound") {
				t.Errorf("%s %s: %v", v.version, path, err)
			}
		}
	}
	must(t, files, "Rmdir", fields{"path": empty})
}

// Neither the path nor the ID of a volume goes unchecked.
func TestVolume_rejectsAnInvalidVolumeAndPath(t *testing.T) {
	for _, v := range volumes {
		client := v.open(t)
		for _, c := range []struct {
			method  string
			request fields
		}{
			{"IsVolumeFormatted", fields{"volume_id": `\\.\PhysicalDrive0`}},
			{"FormatVolume", fields{"volume_id": `C:\`}},
			{"FormatVolume", fields{"volume_id": ""}},
			{"MountVolume", fields{"volume_id": `\\?\Volume{0b0ddd2d-3b5b-4b2e-a6d7-4c1d2b3a4f5e}\`, v.path: `C:\windows\x`}},
			{v.unmount, fields{"volume_id": `\\?\Volume{0b0ddd2d-3b5b-4b2e-a6d7-4c1d2b3a4f5e}\`, v.path: `C:\windows\x`}},
		} {
			if _, err := call(t, client, c.method, c.request); err == nil || !strings.Contains(err.Error(), "InvalidArgument") {
				t.Errorf("%s %s %v: %v", v.version, c.method, c.request, err)
			}
		}
	}
}
