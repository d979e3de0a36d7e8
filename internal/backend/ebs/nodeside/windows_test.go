package nodeside

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

func newWindows(t *testing.T, change ...func(*Options)) *Windows {
	t.Helper()
	o := Options{Metadata: windowsInstance{ID: "i-0123456789abcdef0", Type: "m5.large", Region: "us-east-1", Zone: "us-east-1a", Interfaces: 2}}
	for _, c := range change {
		c(&o)
	}
	w, err := NewWindows(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

type windowsInstance metadata.Instance

func (i windowsInstance) Instance(context.Context) (metadata.Instance, error) {
	return metadata.Instance(i), nil
}

func TestWindows_knowsAVolumeByTheDisksSerialNumber(t *testing.T) {
	const long, short = "vol-0123456789abcdef0", "vol-01234567"
	w := newWindows(t)
	for serial, want := range map[string]string{
		"vol0123456789abcdef0_00000001.":   long, // NVMe
		"vol0123456789abcdef0 _00000001.":  long,
		"VOL0123456789ABCDEF0_00000001.":   long,
		"vol0123456789abcdef0":             long, // Xen's PV drivers
		"  vol0123456789abcdef0     ":      long,
		"vol0123456789abcdef0\x00\x00":     long,
		"vol-0123456789abcdef0":            long,
		"QEMU_vol0123456789abcdef0":        long,
		"vol01234567_00000001.":            short,
		"vol01234567":                      short,
		"vol0123456789abcdef0f":            "", // longer than an ID
		"vol0123456789abcdef0g_00000001.":  "",
		"vol0123456789abcdeé":              "",
		"vol012345678":                     "",
		"revol0123456789abcdef0":           "",
		"AWS0123456789ABCDEF0_00000001.":   "", // an instance store disk
		"":                                 "",
		"vol":                              "",
		"vol_01234567":                     "",
		"0123456789abcdef0":                "",
		"AAAAAAAAAAAAAAAAAAAA_0000_0001.":  "",
		"vol0123456789abcdef1_00000001.":   "vol-0123456789abcdef1",
		"vol01234567 vol0123456789abcdef0": short,
	} {
		if got := idInSerial(serial); got != want {
			t.Errorf("serial number %q is of %q; want %q", serial, got, want)
		}
		for _, id := range []string{long, short} {
			if got := w.IsVolume(id, nil, api.Disk{SerialNumber: serial}); got != (id == want) {
				t.Errorf("the disk %q is %s: %t", serial, id, got)
			}
		}
	}
	for _, id := range []string{"", "vol-", "pvc-1", "vol-0123456789ABCDEF0"} {
		if w.IsVolume(id, nil, api.Disk{}) {
			t.Errorf("a disk without a serial number is %q", id)
		}
		if err := w.CheckID(id); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := w.CheckID(long); err != nil {
		t.Error(err)
	}
	err := w.CheckID("local-ebs://dev/sdf")
	if !errors.Is(err, backend.ErrNotFound) || !strings.Contains(err.Error(), `"local-ebs://dev/sdf" is node-local, which Windows nodes do not serve`) {
		t.Error(err)
	}
}

func FuzzIDInSerial(f *testing.F) {
	f.Add("vol0123456789abcdef0_00000001.")
	f.Add("vol-\xff")
	f.Fuzz(func(t *testing.T, serial string) {
		if id := idInSerial(serial); id != "" && !volumeID.MatchString(id) {
			t.Errorf("%q gives %q", serial, id)
		}
	})
}

func TestWindows_reportsIDTopologyAndLimit(t *testing.T) {
	got, err := newWindows(t).NodeInfo(t.Context())
	want := backend.NodeInfo{ID: "i-0123456789abcdef0", MaxVolumes: 25, Topology: backend.Topology{
		"topology.kubernetes.io/zone": "us-east-1a", "topology.ebs.csi.aws.com/zone": "us-east-1a", "kubernetes.io/os": "windows"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	labelled := windowsInstance{ID: "i-0123456789abcdef0", Type: "m5.large", Zone: "us-east-1a", Interfaces: 2, Volumes: 3}
	got, err = newWindows(t, func(o *Options) { o.Metadata = labelled }).NodeInfo(t.Context())
	if err != nil || got.MaxVolumes != 22 {
		t.Errorf("with three volumes of others: %+v, %v; want a limit of 22", got, err)
	}
	five := int64(5)
	got, err = newWindows(t, func(o *Options) { o.Limits.Reserved = &five }).NodeInfo(t.Context())
	if err != nil || got.MaxVolumes != 21 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = newWindows(t, func(o *Options) { o.Metadata = nil }).NodeInfo(t.Context())
	if !errors.Is(err, backend.ErrPrecondition) {
		t.Error(err)
	}
	if _, err := NewWindows(Options{}); err != nil {
		t.Error(err)
	}
	o := Options{}
	o.Limits.Volumes, o.Limits.Reserved = &five, &five
	if _, err := NewWindows(o); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}
