package nodeside

import "testing"

// Volumes that the driver has opened are listed with their disks and partitions until they
// are closed, also by another process. Other disks are not.
func TestNodeVolumes_areThoseThatTheDriverOpened(t *testing.T) {
	m := newMachine(t)
	disk := m.plug("nvme1n1", volumeA, 128*mebibyte)
	disk.split(40)
	m.plug("nvme2n1", volumeB, 8*mebibyte)
	n := m.node()
	want := func(n *Node, ids ...string) {
		t.Helper()
		listed, err := n.NodeVolumes(t.Context())
		m.must(err)
		if len(listed) != len(ids) {
			t.Fatalf("listed %+v, want %v", listed, ids)
		}
		for i, id := range ids {
			if listed[i].ID != id || len(listed[i].Devices) == 0 {
				t.Errorf("listed %+v, want %s", listed[i], id)
			}
		}
	}
	want(n)
	m.must(m.open(n, volumeA).Release())
	want(n, volumeA)
	listed, err := n.NodeVolumes(t.Context())
	m.must(err)
	if one := listed[0]; one.Size != 128*mebibyte || len(one.Devices) != 2 || one.Devices[0].Number != disk.loop.Number {
		t.Errorf("listed %+v", one)
	}
	want(m.node(), volumeA)
	m.must(m.open(n, volumeB).Release())
	want(n, volumeA, volumeB)
	m.must(n.CloseDevice(t.Context(), volumeA))
	want(n, volumeB)
}
