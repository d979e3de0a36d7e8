package volumetype

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// A value outside its interval is rejected and not reduced to a limit. The message has the
// field, the value and the interval.
func TestCheck_saysWhatIsAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		give Spec
		want error
		says []string
	}{
		"unknown type":            {Spec{Type: "gp4", Size: 10}, backend.ErrInvalid, []string{`"gp4"`, "gp3, gp2, io1"}},
		"type is case-sensitive":  {Spec{Type: "GP3", Size: 10}, backend.ErrInvalid, []string{`"GP3"`}},
		"nothing named":           {Spec{Size: 1}, nil, nil},
		"gp3 too large":           {Spec{Type: GP3, Size: 65537}, backend.ErrOutOfRange, []string{"65537", "1 to 65536"}},
		"gp3 at its largest":      {Spec{Type: GP3, Size: 65536, IOPS: 80000, Throughput: 2000}, nil, nil},
		"gp3 below its IOPS":      {Spec{Type: GP3, Size: 100, IOPS: 2999}, backend.ErrInvalid, []string{"iops 2999", "3000 to 80000"}},
		"gp3 above its IOPS":      {Spec{Type: GP3, Size: 1000, IOPS: 80001}, backend.ErrInvalid, []string{"iops 80001", "3000 to 80000"}},
		"gp3 IOPS for its size":   {Spec{Type: GP3, Size: 10, IOPS: 5001}, backend.ErrOutOfRange, []string{"10 GiB", "3000 to 5000"}},
		"gp3 base at 1 GiB":       {Spec{Type: GP3, Size: 1, IOPS: 3000}, nil, nil},
		"gp3 throughput":          {Spec{Type: GP3, Size: 10, Throughput: 2001}, backend.ErrInvalid, []string{"throughput 2001", "125 to 2000"}},
		"gp3 throughput for IOPS": {Spec{Type: GP3, Size: 100, Throughput: 751}, backend.ErrInvalid, []string{"3000 IOPS", "125 to 750"}},
		"gp3 throughput reached":  {Spec{Type: GP3, Size: 160, IOPS: 8000, Throughput: 2000}, nil, nil},
		"gp2 with IOPS":           {Spec{Type: GP2, Size: 10, IOPS: 3000}, backend.ErrInvalid, []string{"iops 3000", "gp2"}},
		"gp2 too large":           {Spec{Type: GP2, Size: 16385}, backend.ErrOutOfRange, []string{"1 to 16384"}},
		"io1 without IOPS":        {Spec{Type: IO1, Size: 4}, backend.ErrInvalid, []string{"iops is missing", "100 to 200"}},
		"io1 ratio":               {Spec{Type: IO1, Size: 10, IOPS: 501}, backend.ErrOutOfRange, []string{"100 to 500"}},
		"io1 too small":           {Spec{Type: IO1, Size: 3, IOPS: 100}, backend.ErrOutOfRange, []string{"4 to 16384"}},
		"io2 at its most":         {Spec{Type: IO2, Size: 256, IOPS: 256000}, nil, nil},
		"io2 with throughput":     {Spec{Type: IO2, Size: 10, IOPS: 100, Throughput: 125}, backend.ErrInvalid, []string{"throughput 125", "io2"}},
		"st1 too small":           {Spec{Type: ST1, Size: 124}, backend.ErrOutOfRange, []string{"125 to 16384"}},
		"sc1":                     {Spec{Type: SC1, Size: 125}, nil, nil},
		"standard too large":      {Spec{Type: Standard, Size: 1025}, backend.ErrOutOfRange, []string{"1 to 1024"}},
		"gp3 for several nodes":   {Spec{Type: GP3, Size: 10, MultiAttach: true}, backend.ErrInvalid, []string{"io1 or io2"}},
		"io2 for several nodes":   {Spec{Type: IO2, Size: 10, IOPS: 100, MultiAttach: true}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.give.Check()
			if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
				t.Fatalf("%+v: got %v; want %v", c.give, err, c.want)
			}
			for _, words := range c.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not say %q", err, words)
				}
			}
		})
	}
}

func TestChanged_isWhatModifyVolumeMakes(t *testing.T) {
	for name, c := range map[string]struct{ have, change, want Spec }{
		"size alone":        {Spec{Type: GP3, Size: 10, IOPS: 4000, Throughput: 200}, Spec{Size: 20}, Spec{Type: GP3, Size: 20, IOPS: 4000, Throughput: 200}},
		"to io2 unsaid":     {Spec{Type: GP3, Size: 10, IOPS: 4000, Throughput: 200}, Spec{Type: IO2}, Spec{Type: IO2, Size: 10, IOPS: 3000}},
		"to gp3":            {Spec{Type: GP2, Size: 10, IOPS: 100}, Spec{Type: GP3, Throughput: 300}, Spec{Type: GP3, Size: 10, IOPS: 3000, Throughput: 300}},
		"to st1":            {Spec{Type: GP3, Size: 200, IOPS: 4000, Throughput: 200}, Spec{Type: ST1}, Spec{Type: ST1, Size: 200}},
		"the type it has":   {Spec{Type: IO2, Size: 10, IOPS: 4000}, Spec{Type: IO2}, Spec{Type: IO2, Size: 10, IOPS: 4000}},
		"gp2 keeps nothing": {Spec{Type: GP2, Size: 100, IOPS: 300}, Spec{Size: 200}, Spec{Type: GP2, Size: 200}},
	} {
		if got := c.have.Changed(c.change); got != c.want {
			t.Errorf("%s: got %+v; want %+v", name, got, c.want)
		}
	}
}

func TestCheckChange_refusesWhatEC2CannotDo(t *testing.T) {
	shared := Spec{Type: IO1, Size: 10, IOPS: 100, MultiAttach: true}
	shared2 := Spec{Type: IO2, Size: 10, IOPS: 100, MultiAttach: true}
	for name, c := range map[string]struct {
		have, change Spec
		want         error
	}{
		"shrink":               {Spec{Type: GP3, Size: 10}, Spec{Size: 9}, backend.ErrOutOfRange},
		"grow":                 {Spec{Type: GP3, Size: 10, IOPS: 3000, Throughput: 125}, Spec{Size: 11}, nil},
		"too small for st1":    {Spec{Type: GP3, Size: 10}, Spec{Type: ST1}, backend.ErrOutOfRange},
		"shared io1 grows":     {shared, Spec{Size: 11}, backend.ErrInvalid},
		"shared io1 IOPS":      {shared, Spec{IOPS: 200}, backend.ErrInvalid},
		"shared io1 unchanged": {shared, Spec{}, nil},
		"shared io2 grows":     {shared2, Spec{Size: 11}, nil},
		"shared io2 type":      {shared2, Spec{Type: GP3}, backend.ErrInvalid},
	} {
		err := c.have.CheckChange(c.have.Changed(c.change))
		if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("%s: got %v; want %v", name, err, c.want)
		}
	}
}

// A valid volume stays valid when it grows: an expansion alone never violates a ratio.
func TestCheck_growthBreaksNoRatio(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{
			Type: rapid.SampledFrom(Names()).Draw(t, "type"), Size: rapid.Int32Range(1, 65536).Draw(t, "size"),
			IOPS: rapid.Int32Range(0, 260000).Draw(t, "iops"), Throughput: rapid.Int32Range(0, 2100).Draw(t, "throughput"),
		}
		if s.Check() != nil {
			return
		}
		kind, _ := Lookup(s.Type)
		grown := s.Changed(Spec{Size: rapid.Int32Range(s.Size, kind.Size.Most).Draw(t, "grown")})
		if err := s.CheckChange(grown); err != nil {
			t.Fatalf("%+v to %+v: %v", s, grown, err)
		}
		if !errors.Is(s.CheckChange(Spec{Type: s.Type, Size: s.Size - 1, IOPS: s.IOPS}), backend.ErrOutOfRange) {
			t.Fatalf("%+v could shrink", s)
		}
	})
}

// EC2's limits may be higher than those of this package: a volume keeps what it has.
func TestCheckChange_allowsWhatTheVolumeHas(t *testing.T) {
	io2 := Spec{Type: IO2, Size: 300, IOPS: 300000}
	gp3 := Spec{Type: GP3, Size: 100, IOPS: 3000, Throughput: 900}
	for name, c := range map[string]struct {
		have, change Spec
		want         error
	}{
		"growth":                  {io2, Spec{Size: 301}, nil},
		"fewer IOPS":              {io2, Spec{IOPS: 200000}, nil},
		"more IOPS":               {io2, Spec{IOPS: 300001}, backend.ErrInvalid},
		"another type":            {io2, Spec{Type: IO1, IOPS: 300000}, backend.ErrInvalid},
		"growth, throughput":      {gp3, Spec{Size: 101}, nil},
		"the ratio of a least":    {Spec{Type: GP3, Size: 1, IOPS: 3000}, Spec{Size: 2, IOPS: 6000}, backend.ErrOutOfRange},
		"a size above the type's": {Spec{Type: GP2, Size: 20000}, Spec{Type: GP3}, nil},
	} {
		err := c.have.CheckChange(c.have.Changed(c.change))
		if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("%s: got %v; want %v", name, err, c.want)
		}
	}
}

// A volume can grow with any IOPS and throughput that EC2 has given to it.
func TestCheckChange_everyVolumeCanGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{
			Type: rapid.SampledFrom(Names()).Draw(t, "type"), Size: rapid.Int32Range(1, 100000).Draw(t, "size"),
			IOPS: rapid.Int32Range(1, 1000000).Draw(t, "iops"), Throughput: rapid.Int32Range(1, 5000).Draw(t, "throughput"),
		}.Chosen()
		kind, _ := Lookup(s.Type)
		grown := s.Changed(Spec{Size: rapid.Int32Range(s.Size, max(s.Size, kind.Size.Most)).Draw(t, "grown")})
		if err := s.CheckChange(grown); err != nil {
			t.Fatalf("%+v to %+v: %v", s, grown, err)
		}
	})
}
