package params

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

// lenient reads parameters as a driver does by default.
func lenient(parameters, mutable map[string]string) (Volume, error) {
	parameters, mutable, err := Normalize(parameters, mutable, Lenient)
	if err != nil {
		return Volume{}, err
	}
	return ParseVolume(parameters, mutable, Lenient)
}

func TestParseVolume_acceptsWhatTheReferenceDriverChanges(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		parameters, mutable map[string]string
		want                Volume
		notes               []string
	}{
		"IOPS beyond the type":   {map[string]string{"type": "io1", "iops": "100000"}, nil, Volume{Type: "io1", IOPS: 100000}, nil},
		"too few IOPS, raised":   {map[string]string{"iops": "100", "allowAutoIOPSPerGBIncrease": "true"}, nil, Volume{IOPS: 3000, Raise: true}, []string{"iops 100 is read as 3000"}},
		"too few IOPS, mutable":  {nil, map[string]string{"iops": "100"}, Volume{IOPS: 3000}, []string{"iops 100 is read as 3000"}},
		"any ratio":              {map[string]string{"type": "io1", "iopsPerGB": "51"}, nil, Volume{Type: "io1", IOPSPerGB: 51}, nil},
		"encrypted yes":          {map[string]string{"encrypted": "yes"}, nil, Volume{Encrypted: &yes}, []string{`encrypted "yes" is read as "true"`}},
		"encrypted 1":            {map[string]string{"encrypted": "1"}, nil, Volume{Encrypted: &yes}, []string{`encrypted "1" is read as "true"`}},
		"encrypted off":          {map[string]string{"encrypted": "OFF"}, nil, Volume{Encrypted: &no}, []string{`encrypted "OFF" is read as "false"`}},
		"encrypted empty":        {map[string]string{"encrypted": ""}, nil, Volume{}, nil},
		"a key and no":           {map[string]string{"encrypted": "false", "kmsKeyId": "alias/x"}, nil, Volume{KMSKeyID: "alias/x"}, []string{"kmsKeyId names a key"}},
		"another word":           {map[string]string{"blockAttachUntilInitialized": "always"}, nil, Volume{}, []string{`blockAttachUntilInitialized "always" is read as "false"`}},
		"empty values":           {map[string]string{"type": "", "kmsKeyId": "", "blockSize": ""}, nil, Volume{}, nil},
		"numbers that are unset": {map[string]string{"type": "io2", "iops": "0", "iopsPerGB": "5", "throughput": "-1", "volumeInitializationRate": "0"}, nil, Volume{Type: "io2", IOPSPerGB: 5}, nil},
		"a key twice":            {map[string]string{"type": "io2", "TYPE": "io2", "iops": "100"}, nil, Volume{Type: "io2", IOPS: 100}, nil},
		"the old name of type":   {nil, map[string]string{"type": "io2", "volumeType": "gp3", "iops": "100"}, Volume{Type: "io2", IOPS: 100}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Format, c.want.Lenient = Format{}, true
			got, err := lenient(c.parameters, c.mutable)
			if err != nil {
				t.Fatal(err)
			}
			notes := got.Notes
			got.Notes = nil
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if len(notes) != len(c.notes) {
				t.Fatalf("the notes are %q, want %q", notes, c.notes)
			}
			for i, words := range c.notes {
				if !strings.Contains(notes[i], words) {
					t.Errorf("the note %q does not say %q", notes[i], words)
				}
			}
		})
	}
}

// What EC2 would refuse, or what would lose data, is refused by both readings.
func TestParseVolume_lenientRefuses(t *testing.T) {
	for name, give := range map[string]map[string]string{
		"an unknown key":          {"tier": "fast"},
		"an unknown type":         {"type": "gp9"},
		"a word for encrypted":    {"encrypted": "maybe"},
		"a word for a number":     {"iops": "many"},
		"IOPS and a ratio":        {"type": "io2", "iops": "100", "iopsPerGB": "1"},
		"IOPS of gp2":             {"type": "gp2", "iops": "3000"},
		"too few IOPS":            {"type": "io1", "iops": "50"},
		"an option of mkfs":       {"blockSize": "4096 -F"},
		"two values for one key":  {"type": "gp3", "TYPE": "io2"},
		"too much throughput":     {"throughput": "2001"},
		"a cluster size, no flag": {"ext4ClusterSize": "16384"},
	} {
		if _, err := lenient(give, nil); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", name, err)
		}
	}
}

// reference computes the IOPS that the AWS EBS CSI driver asks EC2 for, by the rules of
// its documentation of parameters and the limits of the types.
func reference(kind volumetype.Type, size, iops, perGB int32, raise bool) int64 {
	asked := int64(iops)
	if iops == 0 {
		asked = int64(perGB) * int64(size)
	}
	if kind.IOPSPerGiB == 0 || asked == 0 {
		return asked
	}
	if raise {
		asked = max(asked, int64(kind.IOPS.Least))
	}
	asked = min(asked, int64(kind.IOPS.Most))
	if bySize := int64(kind.IOPSPerGiB) * int64(size); bySize >= int64(kind.IOPS.Least) {
		asked = min(asked, bySize)
	}
	return asked
}

// A volume that the reference driver would have made is made here with the same IOPS.
func TestParseVolume_lenientHasTheIOPSOfTheReferenceDriver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind, err := volumetype.Lookup(rapid.SampledFrom(volumetype.Names()).Draw(t, "type"))
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.Int32Range(kind.Size.Least, kind.Size.Most).Draw(t, "size")
		number := rapid.SampledFrom([]int32{0, 1, 49, 50, 51, 100, 500, 501, 1000, 3000, 64000, 100000, 256001})
		iops, perGB, raise := number.Draw(t, "iops"), number.Draw(t, "iopsPerGB"), rapid.Bool().Draw(t, "raise")
		if iops != 0 && perGB != 0 {
			perGB = 0
		}
		v, err := lenient(map[string]string{"type": kind.Name, "iops": strconv.Itoa(int(iops)), "iopsPerGB": strconv.Itoa(int(perGB)),
			"allowAutoIOPSPerGBIncrease": strconv.FormatBool(raise)}, nil)
		var spec volumetype.Spec
		if err == nil {
			spec, err = v.Spec(size)
		}
		if err == nil {
			err = spec.Check()
		}
		want := reference(kind, size, iops, perGB, raise)
		accepted := volumetype.Spec{Type: kind.Name, Size: size, IOPS: int32(want)}.Check() == nil // by EC2
		if accepted && (err != nil || int64(spec.IOPS) != want) {
			t.Fatalf("%d IOPS (%v); want %d", spec.IOPS, err, want)
		}
	})
}

// A class that the strict reading accepts means the same to the lenient one.
func TestParseVolume_lenientAgreesWithStrict(t *testing.T) {
	keys := []string{"type", "iops", "iopsPerGB", "throughput", "allowAutoIOPSPerGBIncrease", "encrypted", "kmsKeyId", "blockSize", "ext4BigAlloc"}
	values := []string{"gp3", "io1", "io2", "st1", "1", "50", "125", "500", "3000", "64000", "100000", "true", "false", "TRUE", "yes", "", "0", "alias/x"}
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.MapOf(rapid.SampledFrom(keys), rapid.SampledFrom(values))
		parameters, mutable := draw.Draw(t, "parameters"), draw.Draw(t, "mutable")
		before := []map[string]string{maps.Clone(parameters), maps.Clone(mutable)}
		size := rapid.Int32Range(1, 70000).Draw(t, "size")
		strict, err := ParseVolume(parameters, mutable, Strict)
		if err != nil {
			return
		}
		same, err := ParseVolume(parameters, mutable, Lenient)
		if err != nil || len(same.Notes) > 0 {
			t.Fatalf("strict accepts %+v, lenient: %v, %q", strict, err, same.Notes)
		}
		same.Lenient, same.Notes = false, nil
		if diff := cmp.Diff(strict, same); diff != "" {
			t.Fatal(diff)
		}
		if want, err := strict.Spec(size); err == nil && want.Check() == nil {
			same.Lenient = true
			if got, err := same.Spec(size); err != nil || got != want {
				t.Fatalf("%+v (%v), want %+v", got, err, want)
			}
		}
		if !slices.EqualFunc(before, []map[string]string{parameters, mutable}, maps.Equal) {
			t.Fatal("the caller's parameters changed")
		}
	})
}
