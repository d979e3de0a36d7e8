package csiproxy_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	. "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"

	"github.com/holdfast-csi/holdfast/proto/csiproxy"
)

const (
	path   = `C:\var\lib\kubelet\plugins\x`
	target = `C:\var\lib\kubelet\pods\y`
	remote = `\\server\share`
	iqn    = "iqn.2003-01.org.example:disks"

	identity = "{Page83:600508e0 SerialNumber:vol0123}"
)

// kep are the operations that the KEP names; every version has them.
func kep() []string {
	return []string{
		"Mkdir", "Rmdir", "Rescan", "PartitionDisk", "FormatVolume", "MountSMBShare", "MountISCSILun",
		"LinkVolume", "GetDiskLocations", "GetDiskIDs", "ResizeVolume",
	}
}

// inAnyOrder are the encodings of a map.
func inAnyOrder(entries ...[]byte) (all [][]byte) {
	if len(entries) == 0 {
		return [][]byte{nil}
	}
	for i, first := range entries {
		for _, rest := range inAnyOrder(slices.Delete(slices.Clone(entries), i, i+1)...) {
			all = append(all, Message(first, rest))
		}
	}
	return all
}

// The bytes on the wire in each version, without the generated code.
func TestVersions_areThoseOfTheWire(t *testing.T) {
	Check(t, csiproxy.Versions(), map[string][]Exchange{
		"v1alpha1": alphaExchanges(),
		"v1beta1":  betaExchanges(),
		"v1":       stableExchanges(),
	})
}

func alphaExchanges() []Exchange {
	location := Sub(2, Text(1, "1"), Text(2, "2"), Text(3, "3"), Text(4, "4"))
	page83 := Entry(1, Text(1, "page83"), Text(2, "600508e0"))
	serial := Entry(1, Text(1, "serialNumber"), Text(2, "vol0123"))
	var ids [][]byte
	for _, said := range inAnyOrder(page83, serial, Entry(1, Text(1, "page83.0"), Text(2, "600508e0")), Entry(1, Text(1, "page83.1"), Text(2, "a port"))) {
		ids = append(ids, Entry(1, Text(1, "7"), Sub(2, said)))
	}
	return []Exchange{
		Sent("Mkdir", Text(1, path)).Asks("Mkdir " + path),
		Sent("Rmdir", Text(1, path)).Asks("Rmdir " + path + " false"),
		Sent("Rescan").Asks("Rescan"),
		Sent("PartitionDisk", Text(1, "7")).Asks("Partition 7", "Online 7").Answers(Text(1, VolumeID)),
		Sent("FormatVolume", Text(1, VolumeID), Text(2, path), Text(3, "NTFS")).Asks(formats()...),
		Sent("MountSMBShare", Text(1, remote), Text(2, path), Text(3, "u"),
			Text(4, "p")).Asks(`Mount \\server\share at ` + path + " as u with p"),
		Sent("MountISCSILun", Text(1, "10.0.0.1:3261"), Text(2, iqn), Text(3, "4"), Text(4, "u"), Text(5, "s")).
			Asks(mounts("{10.0.0.1 3261}")...).Answers(Text(1, "7")),
		Sent("LinkVolume", Text(1, path), Text(2, target)).Asks("Link source " + path + " link " + target),
		Sent("GetDiskLocations").Asks("List").Answers(Entry(1, Text(1, "7"), location)),
		Sent("GetDiskIDs").Asks("List").Answers(ids...),
		Sent("ResizeVolume", Text(1, VolumeID), Number(2, 1<<40)).Asks("Resize " + VolumeID + " 1099511627776"),
	}
}

// formats is what formatting and mounting asks of a machine that has done it.
func formats() []string {
	return []string{"FileSystem " + VolumeID, "At " + path, "Mount " + VolumeID + " at " + path}
}

// mounts is what mounting a LUN asks of a machine that has its disk.
func mounts(portal string) []string {
	asksDisks := "Disks " + portal + " " + iqn
	return []string{asksDisks, "Connect " + portal + " " + iqn + " auth 1 as u with s", asksDisks, "List", "SetOnline 7 " + identity + " true"}
}

// ids are what disk 7 says it is.
func ids(number protowire.Number) []byte {
	return Sub(number, Text(1, "600508e0"), Text(2, "vol0123"),
		Sub(3, Number(1, 1), Number(2, 3), Text(4, "600508e0")), Sub(3, Number(1, 2), Number(2, 8), Number(3, 1), Text(4, "a port")))
}

// common are the exchanges that v1beta1 and v1 share.
func common() []Exchange {
	portal := Sub(1, Text(1, "10.0.0.1"), Number(2, 3261))
	location := Sub(2, Number(1, 1), Number(2, 2), Number(3, 3), Number(4, 4))
	return []Exchange{
		Sent("Mkdir", Text(1, path)).Asks("Mkdir " + path),
		Sent("Rmdir", Text(1, path)).Asks("Rmdir " + path + " false"),
		Sent("Rmdir", Text(1, path), Yes(2)).Asks("Rmdir " + path + " true"),
		Sent("Rescan").Asks("Rescan"),
		Sent("FormatVolume", Text(1, VolumeID), Text(2, "NTFS"), Text(3, path)).Asks(formats()...),
		Sent("MountSMBShare", Text(1, remote), Text(2, path), Text(3, "u"),
			Text(4, "p")).Asks(`Mount \\server\share at ` + path + " as u with p"),
		Sent("MountISCSILun", portal, Text(2, iqn), Number(3, 4), Number(4, 1), Text(5, "u"), Text(6, "s")).
			Asks(mounts("{10.0.0.1 3261}")...).Answers(Number(1, 7)),
		Sent("LinkVolume", Text(1, path), Text(2, target)).Asks("Link source " + path + " link " + target),
		Sent("GetDiskLocations").Asks("List").Answers(Entry(1, Number(1, 7), location)),
		Sent("GetDiskIDs").Asks("List").Answers(Entry(1, Number(1, 7), ids(2))),
		Sent("ResizeVolume", Text(1, VolumeID), Number(2, 1<<40)).Asks("Resize " + VolumeID + " 1099511627776").Answers(Number(1, 1<<40)),
		Sent("UnmountVolume", Text(1, VolumeID), Text(2, path)).Asks("Unmount " + VolumeID + " at " + path),
		Sent("UnmountSMBShare", Text(1, remote), Text(2, path)).Asks(`Unmount \\server\share at "C:\\var\\lib\\kubelet\\plugins\\x"`),
		Sent("UnmountISCSILun", portal, Text(2, iqn), Number(3, 4)).Asks("Disks {10.0.0.1 3261} "+iqn, "List", "SetOnline 7 "+identity+" false"), // the session has another disk
	}
}

func betaExchanges() []Exchange {
	return append(common(),
		Sent("PartitionDisk", Number(1, 7)).Asks("Partition 7", "Online 7").Answers(Text(1, VolumeID)),
	)
}

func stableExchanges() []Exchange {
	disk := Sub(1, Number(1, 7), Sub(2, Number(1, 1), Number(2, 2), Number(3, 3), Number(4, 4)), ids(3))
	id := Text(1, VolumeID)
	return slices.Concat(common(), stableISCSI(), []Exchange{
		Sent("PartitionDisk", Number(1, 7)).Asks("Partition 7").Answers(id),
		Sent("PartitionDisk", Number(1, 7), ids(2)).Asks("Partition 7 " + identity).Answers(id),
		Sent("MountSMBShare", Text(1, remote)).Asks(`Mount \\server\share at  as  with `),
		Sent("UnmountSMBShare", Text(1, remote)).Asks(`Unmount \\server\share at ""`),
		Sent("PathExists", Text(1, path)).Asks("PathExists " + path).Answers(Yes(1)),
		Sent("IsLink", Text(1, path)).Asks("IsLink " + path).Answers(Yes(1)),
		Sent("RmdirContents", Text(1, path)).Asks("RmdirContents " + path),
		Sent("ListDisks").Asks("List").Answers(disk),
		Sent("GetDiskState", Number(1, 7)).Asks("Size 7", "Online 7").Answers(Message(Number(1, 64<<30), Yes(2))),
		Sent("SetDiskState", Number(1, 7), Yes(2)).Asks("SetOnline 7 true"),
		Sent("SetDiskState", Number(1, 7)).Asks("SetOnline 7 false"),
		Sent("SetDiskState", Number(1, 7), Yes(2), ids(3)).Asks("SetOnline 7 " + identity + " true"),
		Sent("ListVolumes", Number(1, 7), Number(2, 3)).Asks("OnDisk 7 partition 3").Answers(Message(id, Text(1, `\\?\Volume{1}\`))),
		Sent("GetVolumeDisk", id).Asks("DiskOf " + VolumeID).Answers(Number(1, 4294967295)),
		Sent("GetVolumeFileSystem", id).Asks("FileSystem " + VolumeID).Answers(Text(1, "NTFS")),
		Sent("GetVolumeStats", id).Asks("Stats " + VolumeID).Answers(Message(Number(1, 5<<30), Number(2, 300))),
		Sent("GetVolumeAtPath", Text(1, path)).Asks("At " + path).Answers(id),
		Sent("GetVolumeAtPath", Text(1, path), Yes(2)).Asks("Closest " + path).Answers(id),
		Sent("MountVolume", id, Text(2, path)).Asks("Mount " + VolumeID + " at " + path),
		Sent("FlushVolume", id).Asks("Flush " + VolumeID),
	})
}

func stableISCSI() []Exchange {
	portal := Sub(1, Text(1, "10.0.0.1"))
	name := Text(2, iqn)
	return []Exchange{
		Sent("AddISCSIPortal", portal).Asks("AddPortal {10.0.0.1 0}"),
		Sent("RemoveISCSIPortal", portal).Asks("RemovePortal {10.0.0.1 0}"),
		Sent("ListISCSIPortals").Asks("Portals").Answers(Message(
			Sub(1, Text(1, "10.0.0.1"), Number(2, 3261)), Sub(1, Text(1, "10.0.0.2"), Number(2, 3260)))),
		Sent("DiscoverISCSITargets", portal).Asks("Discover {10.0.0.1 0}").Answers(Message(Text(1, "iqn.a"), Text(1, "iqn.b"))),
		Sent("ConnectISCSITarget", portal, name, Number(3, 2), Text(4, "u"),
			Text(5, "s")).Asks("Connect {10.0.0.1 0} " + iqn + " auth 2 as u with s"),
		Sent("DisconnectISCSITarget", portal, name).Asks("Disconnect {10.0.0.1 0} " + iqn),
		Sent("ListISCSIDisks", portal, name).Asks("Disks {10.0.0.1 0} " + iqn).Answers(packed(1, 7, 4294967295)),
		Sent("SetISCSIMutualSecret", Text(1, "s")).Asks("SetMutualSecret s"),
	}
}

// The versions, and that each has the KEP's operations.
func TestVersions_eachHasWhatTheKEPNames(t *testing.T) {
	names := []string{}
	for _, definition := range csiproxy.Versions() {
		names = append(names, definition.Version)
		server := Serve(t, definition, Answering().Host())
		if want := "csiproxy." + definition.Version + ".CSIProxyService"; server.Service != want {
			t.Errorf("service %s, want %s", server.Service, want)
		}
		for _, method := range kep() {
			if !slices.Contains(server.Methods, method) {
				t.Errorf("%s has no %s", definition.Version, method)
			}
		}
		if want := map[string]int{"v1alpha1": 11, "v1beta1": 14, "v1": 35}[definition.Version]; len(server.Methods) != want {
			t.Errorf("%s has %d calls, want %d: those that are released stay as they are", definition.Version, len(server.Methods), want)
		}
		if want := `\\.\pipe\csi-proxy-` + definition.Version; definition.Pipe() != want {
			t.Errorf("pipe %s, want %s", definition.Pipe(), want)
		}
	}
	if !slices.IsSortedFunc(names, func(a, b string) int { return api.CompareVersions(b, a) }) {
		t.Errorf("versions %q are not from the newest", names)
	}
}

// packed is a list of numbers.
func packed(number protowire.Number, values ...uint64) []byte {
	var all []byte
	for _, value := range values {
		all = protowire.AppendVarint(all, value)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), all)
}

// The empty message, and one of empty and unknown parts, of every call; a
// panic would end the test.
func TestVersions_badMessagesDoNotPanic(t *testing.T) {
	for _, machine := range []*Machine{{}, Answering()} {
		for _, definition := range csiproxy.Versions() {
			server := Serve(t, definition, machine.Host())
			for _, method := range server.Methods {
				for _, request := range [][]byte{nil, Text(99, "x"), Message(Sub(1), Sub(2), Sub(3))} {
					if _, err := server.Call(t, method, request); status.Code(err) == codes.Unavailable {
						t.Errorf("%s %s, %x: %v", definition.Version, method, request, err)
					}
				}
			}
		}
	}
}

// A version gives the host's error to the server as it is.
func TestVersions_giveTheErrorsOfTheHostAsTheyAre(t *testing.T) {
	for _, definition := range csiproxy.Versions() {
		for _, want := range []error{backend.ErrNotFound, backend.ErrInUse, backend.ErrCredentials} {
			machine := Answering()
			machine.Err = want
			server := Serve(t, definition, machine.Host())
			for _, exchange := range map[string][]Exchange{
				"v1alpha1": alphaExchanges(), "v1beta1": betaExchanges(), "v1": stableExchanges(),
			}[definition.Version] {
				if _, err := server.Call(t, exchange.Method(), exchange.Request()); !errors.Is(err, want) {
					t.Errorf("%s %s: %v, want %v", definition.Version, exchange.Method(), err, want)
				}
			}
		}
	}
}

// Numbers that do not fit are rejected, not truncated.
func TestVersions_numbersThatDoNotFitAreRefused(t *testing.T) {
	for _, definition := range csiproxy.Versions() {
		machine := Answering()
		server := Serve(t, definition, machine.Host())
		requests := map[string][]byte{
			"MountISCSILun": Message(Sub(1, Text(1, "10.0.0.1"), Number(2, 65536+3260)), Text(2, iqn)),
		}
		if definition.Version == "v1alpha1" {
			requests = map[string][]byte{
				"PartitionDisk": Text(1, "4294967303"),
				"MountISCSILun": Message(Text(1, "10.0.0.1:68796"), Text(2, iqn), Text(3, "0")),
			}
		}
		for method, request := range requests {
			if _, err := server.Call(t, method, request); !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s %s: %v", definition.Version, method, err)
			}
		}
		if calls := machine.Calls(); len(calls) > 0 {
			t.Errorf("%s asked the host %q", definition.Version, calls)
		}
	}
}

// An authentication that a version does not know is none that is guessed.
func TestVersions_unknownAuthenticationIsRefused(t *testing.T) {
	for _, definition := range csiproxy.Versions() {
		if definition.Version == "v1alpha1" {
			continue // it has none to name
		}
		server := Serve(t, definition, Answering().Host())
		unknown := Message(Sub(1, Text(1, "10.0.0.1")), Text(2, iqn), Number(4, 3), Text(5, "u"), Text(6, "s"))
		if _, err := server.Call(t, "MountISCSILun", unknown); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", definition.Version, err)
		}
		mutual := Message(Sub(1, Text(1, "10.0.0.1")), Text(2, iqn), Number(3, 4), Number(4, 2), Text(5, "u"), Text(6, "s"))
		if _, err := server.Call(t, "MountISCSILun", mutual); errors.Is(err, backend.ErrInvalid) == (definition.Version == "v1") {
			t.Errorf("%s, mutual CHAP: %v", definition.Version, err)
		}
	}
}

func TestListDisks_returnsAllThatIsKnown(t *testing.T) {
	machine := Answering()
	machine.DiskList = []api.Disk{{Number: 8, Size: 64 << 30, Online: true, ReadOnly: true, Problem: errors.New("half of it")}}
	server := Serve(t, csiproxy.Versions()[0], machine.Host())
	response, err := server.Call(t, "ListDisks", nil)
	want := Sub(1, Number(1, 8), Sub(3), Number(4, 64<<30), Yes(5), Yes(6), Text(7, "half of it"))
	if err != nil || !bytes.Equal(response, want) {
		t.Errorf("%x, %v; want %x", response, err, want)
	}
}

// A disk that cannot be read takes no other with it.
func TestVersions_aBrokenDiskIsLeftOut(t *testing.T) {
	for _, definition := range csiproxy.Versions() {
		machine := Answering()
		machine.DiskList = append(machine.DiskList, api.Disk{
			Number: 9, Problem: backend.ErrUnavailable,
		}, api.Disk{Number: 10, Location: &api.DiskLocation{LUN: "x"}})
		server := Serve(t, definition, machine.Host())
		for _, method := range []string{"GetDiskLocations", "GetDiskIDs"} {
			if response, err := server.Call(t, method, nil); err != nil || len(response) == 0 {
				t.Errorf("%s %s: %x, %v", definition.Version, method, response, err)
			}
		}
	}
}
