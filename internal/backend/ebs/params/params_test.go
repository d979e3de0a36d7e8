package params

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

func parsed(t *testing.T, parameters, mutable map[string]string) Volume {
	t.Helper()
	parameters, mutable, err := Normalize(parameters, mutable, Strict)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ParseVolume(parameters, mutable, Strict)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func refusal(parameters, mutable map[string]string) error {
	parameters, mutable, err := Normalize(parameters, mutable, Strict)
	if err == nil {
		_, err = ParseVolume(parameters, mutable, Strict)
	}
	return err
}

func TestParseVolume_readsAnyCase(t *testing.T) {
	yes := true
	got := parsed(t, map[string]string{
		"Type": "io2", "IOPSPERGB": "50", "allowautoiopspergbincrease": "True", "AllowAutoIOPSIncreaseOnModify": "true",
		"Encrypted": "true", "kmskeyid": "arn:aws:kms:eu-west-1:123456789012:key/0-1", "volumeinitializationrate": "200",
		"blockattachuntilinitialized": "true", "BLOCKSIZE": "4k", "numberOfInodes": "1000", "ext4bigalloc": "true", "ext4ClusterSize": "16384",
		"fsType": "ext4", "blockExpress": "true", "tagspecification_b": "b=2", "tagSpecification_a": "a=1",
	}, nil)
	want := Volume{
		Type: "io2", IOPSPerGB: 50, Raise: true, KeepRatio: true, KeepRatioSet: true, Encrypted: &yes,
		KMSKeyID: "arn:aws:kms:eu-west-1:123456789012:key/0-1", InitializationRate: 200, WaitInitialized: true,
		Format: Format{"blocksize": "4k", "numberofinodes": "1000", "ext4bigalloc": "true", "ext4clustersize": "16384"},
		Tags:   []string{"a=1", "b=2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	context := map[string]string{
		"blocksize": "4k", "numberofinodes": "1000", "ext4bigalloc": "true", "ext4clustersize": "16384", "blockattachuntilinitialized": "true",
	}
	if diff := cmp.Diff(context, got.Context()); diff != "" || !WaitsInitialized(context) {
		t.Error(diff)
	}
}

// Which of two spellings counts is not left to chance.
func TestNormalize_refusesAKeyGivenTwice(t *testing.T) {
	for _, twice := range []map[string]string{
		{"type": "gp3", "TYPE": "io2"}, {"volumeType": "gp3", "type": "gp3"}, {"iopsPerGB": "5", "iopspergb": "5"},
		{"tagSpecification_1": "a=b", "TagSpecification_1": "c=d"}, {"tagSpecification": "a=b", "tagspecification_": "a=b"},
	} {
		for _, err := range []error{refusal(twice, nil), refusal(nil, twice)} {
			if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), slices.Sorted(maps.Keys(twice))[0]) {
				t.Errorf("%v: %v; want ErrInvalid that names both", twice, err)
			}
		}
	}
	if err := refusal(map[string]string{"tagSpecification_a": "a=b", "tagSpecification_A": "a=c"}, nil); err != nil {
		t.Errorf("suffixes of tags: %v; want two tags", err)
	}
}

// A VolumeAttributesClass may say the same at creation as later, and wins
// over the StorageClass.
func TestParseVolume_mutableParametersWin(t *testing.T) {
	for name, c := range map[string]struct {
		parameters, mutable map[string]string
		want                Volume
	}{
		"ratio at creation":    {nil, map[string]string{"iopspergb": "100", "allowautoiopsincreaseonmodify": "true"}, Volume{IOPSPerGB: 100, KeepRatio: true, KeepRatioSet: true}},
		"IOPS over ratio":      {map[string]string{"type": "io2", "iopsPerGB": "100"}, map[string]string{"iops": "3000"}, Volume{Type: "io2", IOPS: 3000}},
		"ratio over IOPS":      {map[string]string{"type": "io2", "iops": "3000"}, map[string]string{"iopspergb": "100"}, Volume{Type: "io2", IOPSPerGB: 100}},
		"type and throughput":  {map[string]string{"type": "io2", "throughput": "125"}, map[string]string{"volumeType": "gp3", "throughput": "300"}, Volume{Type: "gp3", Throughput: 300}},
		"what is unsaid stays": {map[string]string{"iops": "4000"}, map[string]string{"throughput": "300"}, Volume{IOPS: 4000, Throughput: 300}},
		"tags come last":       {map[string]string{"tagSpecification_1": "a=1"}, map[string]string{"tagSpecification_1": "a=2", "tagDeletion_1": "b"}, Volume{Tags: []string{"a=1", "a=2"}, Untag: []string{"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Format = Format{}
			if diff := cmp.Diff(c.want, parsed(t, c.parameters, c.mutable)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A value that cannot be is refused with the key, the value and what
// can be.
func TestParseVolume_saysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		give map[string]string
		says []string
	}{
		"unknown":              {map[string]string{"tier": "fast"}, []string{"tier"}},
		"type":                 {map[string]string{"type": "gp9"}, []string{"gp9", "gp3"}},
		"empty type":           {map[string]string{"type": ""}, []string{`type ""`}},
		"iops and ratio":       {map[string]string{"type": "io2", "iops": "100", "iopsPerGB": "1"}, []string{"iops 100", "iopsPerGB 1"}},
		"iops words":           {map[string]string{"iops": "many"}, []string{`iops "many"`, "whole number"}},
		"iops zero":            {map[string]string{"iops": "0"}, []string{`iops "0"`}},
		"iops too large to be": {map[string]string{"iops": "99999999999"}, []string{"99999999999"}},
		"iops for the type":    {map[string]string{"iops": "80001"}, []string{"3000 to 80000"}},
		"iops of gp2":          {map[string]string{"type": "gp2", "iops": "3000"}, []string{"gp2"}},
		"ratio of st1":         {map[string]string{"type": "st1", "iopsPerGB": "1"}, []string{"iopsPerGB 1", "st1"}},
		"throughput of io2":    {map[string]string{"type": "io2", "throughput": "125"}, []string{"throughput 125", "io2"}},
		"throughput":           {map[string]string{"throughput": "2001"}, []string{"125 to 2000"}},
		"encrypted":            {map[string]string{"encrypted": "yes"}, []string{`encrypted "yes"`, `"true" or "false"`}},
		"key without":          {map[string]string{"encrypted": "false", "kmsKeyId": "alias/x"}, []string{"encrypted", "alias/x"}},
		"key of nonsense":      {map[string]string{"kmsKeyId": "not a key"}, []string{"not a key"}},
		"rate":                 {map[string]string{"volumeInitializationRate": "301"}, []string{"100 to 300"}},
		"block size":           {map[string]string{"blockSize": "4096 -F"}, []string{"4096 -F"}},
		"block size an option": {map[string]string{"blockSize": "-n"}, []string{"-n"}},
		"cluster without big":  {map[string]string{"ext4ClusterSize": "16384"}, []string{"ext4BigAlloc"}},
		"two things at once":   {map[string]string{"iops": "x", "throughput": "y"}, []string{`iops "x"`, `throughput "y"`}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{refusal(c.give, nil), refusal(nil, c.give)} {
				if !errors.Is(err, backend.ErrInvalid) {
					t.Fatalf("%v; want ErrInvalid", err)
				}
				for _, words := range c.says {
					if !strings.Contains(err.Error(), words) {
						t.Errorf("%q does not say %q", err, words)
					}
				}
			}
		})
	}
}

func TestSpec_computesIOPSFromTheSize(t *testing.T) {
	for name, c := range map[string]struct {
		give Volume
		size int32
		want int32
		err  error
	}{
		"ratio":              {Volume{Type: "io1", IOPSPerGB: 10}, 100, 1000, nil},
		"too few":            {Volume{Type: "io1", IOPSPerGB: 10}, 4, 0, backend.ErrOutOfRange},
		"raised":             {Volume{Type: "io1", IOPSPerGB: 10, Raise: true}, 4, 100, nil},
		"gp3 raised":         {Volume{IOPSPerGB: 10, Raise: true}, 4, 3000, nil},
		"ratio beyond type":  {Volume{Type: "io1", IOPSPerGB: 51}, 100, 0, backend.ErrOutOfRange},
		"more than any":      {Volume{Type: "io1", IOPSPerGB: 50}, 1281, 0, backend.ErrOutOfRange},
		"beyond 32 bits":     {Volume{Type: "io2", IOPSPerGB: 1 << 30}, 60000, 0, backend.ErrOutOfRange},
		"number whatever":    {Volume{Type: "io2", IOPS: 500}, 10, 500, nil},
		"nothing, the types": {Volume{}, 10, 0, nil},
	} {
		got, err := c.give.Spec(c.size)
		if !errors.Is(err, c.err) || (c.err == nil && err != nil) || (err == nil && got.IOPS != c.want) {
			t.Errorf("%s: got %+v, %v; want %d, %v", name, got, err, c.want, c.err)
		}
	}
}

func TestFormat_isOnlyForFilesystemsThatHaveIt(t *testing.T) {
	mounted := func(fsType string) []backend.Capability { return []backend.Capability{{FSType: fsType}} }
	for name, c := range map[string]struct {
		give Format
		uses []backend.Capability
		want error
	}{
		"nothing":          {nil, mounted("btrfs"), nil},
		"xfs block size":   {Format{"blocksize": "4096"}, mounted("xfs"), nil},
		"usual filesystem": {Format{"ext4bigalloc": "true"}, mounted(""), nil},
		"inodes of xfs":    {Format{"numberofinodes": "10"}, mounted("xfs"), backend.ErrInvalid},
		"btrfs":            {Format{"blocksize": "4096"}, mounted("btrfs"), backend.ErrInvalid},
		"raw block":        {Format{"blocksize": "4096"}, []backend.Capability{{Block: true}}, backend.ErrInvalid},
	} {
		if err := c.give.Check(c.uses, "ext4"); !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
}

func TestParseSnapshot_readsAClass(t *testing.T) {
	got, err := ParseSnapshot(map[string]string{
		"fastsnapshotrestoreavailabilityzones": "us-east-1b, us-east-1a,us-east-1b", "outpostArn": "arn:aws:outposts:us-east-1:123456789012:outpost/op-0a",
		"lockMode": "compliance", "lockExpirationDate": "2030-01-02T03:04:05Z", "lockCoolOffPeriod": "24", "tagSpecification_1": "a=b",
	})
	want := Snapshot{
		FastRestoreZones: []string{"us-east-1a", "us-east-1b"}, OutpostARN: "arn:aws:outposts:us-east-1:123456789012:outpost/op-0a",
		Lock: Lock{Mode: Compliance, Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), CoolOff: 24}, Tags: []string{"a=b"},
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseSnapshot_saysWhatIsWrong(t *testing.T) {
	for name, give := range map[string]map[string]string{
		"unknown":            {"tier": "archive"},
		"twice":              {"lockMode": "governance", "LOCKMODE": "governance", "lockDuration": "1"},
		"no Outpost":         {"outpostArn": "outpost"},
		"empty zone":         {"fastSnapshotRestoreAvailabilityZones": "a,,b"},
		"mode":               {"lockMode": "forever", "lockDuration": "1"},
		"no mode":            {"lockDuration": "1"},
		"no end":             {"lockMode": "governance"},
		"two ends":           {"lockMode": "governance", "lockDuration": "1", "lockExpirationDate": "2030-01-02T03:04:05Z"},
		"days":               {"lockMode": "governance", "lockDuration": "36501"},
		"no time":            {"lockMode": "governance", "lockExpirationDate": "tomorrow"},
		"cool-off":           {"lockMode": "compliance", "lockDuration": "1", "lockCoolOffPeriod": "73"},
		"cool-off governing": {"lockMode": "governance", "lockDuration": "1", "lockCoolOffPeriod": "1"},
	} {
		if _, err := ParseSnapshot(give); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", name, err)
		}
	}
}

// An accepted spec has only values inside the type's intervals, whether a parameter
// or a default set them.
func TestParseVolume_neverCaps(t *testing.T) {
	keys := []string{"type", "iops", "iopsPerGB", "throughput", "allowAutoIOPSPerGBIncrease"}
	values := []string{"gp3", "io1", "io2", "st1", "1", "50", "125", "500", "3000", "64000", "100000", "true", "false", ""}
	draw := func(t *rapid.T, label string) map[string]string {
		return rapid.MapOf(rapid.SampledFrom(keys), rapid.SampledFrom(values)).Draw(t, label)
	}
	rapid.Check(t, func(t *rapid.T) {
		v, err := ParseVolume(draw(t, "parameters"), draw(t, "mutable"), Strict)
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		spec, err := v.Spec(rapid.Int32Range(1, 70000).Draw(t, "size"))
		if err != nil || spec.Check() != nil {
			return
		}
		kind, _ := volumetype.Lookup(v.Type)
		if v.IOPS != 0 && spec.IOPS != v.IOPS || v.Throughput != spec.Throughput {
			t.Fatalf("%+v became %+v", v, spec)
		}
		if v.IOPSPerGB != 0 && spec.IOPS != v.IOPSPerGB*spec.Size && (!v.Raise || spec.IOPS != kind.IOPS.Least) {
			t.Fatalf("%+v became %+v", v, spec)
		}
	})
}

func FuzzParseVolume(f *testing.F) {
	f.Add("iops", "3000", "TYPE", "io2")
	f.Add("tagSpecification_1", "a=b", "tagDeletion_", "x")
	f.Fuzz(func(t *testing.T, key, value, otherKey, otherValue string) {
		give := map[string]string{key: value, otherKey: otherValue}
		if err := refusal(give, nil); err != nil && !errors.Is(err, backend.ErrInvalid) {
			t.Fatalf("%q: %v", give, err)
		}
		if _, err := ParseSnapshot(give); err != nil && !errors.Is(err, backend.ErrInvalid) {
			t.Fatalf("%q: %v", give, err)
		}
	})
}
