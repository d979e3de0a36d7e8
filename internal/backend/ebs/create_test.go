package ebs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// A repeat gives the same volume: one call makes it, and no
// probe goes before it.
func TestCreateVolume_repeatsGiveOneVolume(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		var first backend.Volume
		if d := took(func() { first = s.create(p, creation("pvc-1")) }); d > 1650*time.Millisecond {
			s.Errorf("it took %s; want at most 1.65 s", d)
		}
		if s.calls("CreateVolume") != 1 || s.calls("DescribeVolumes") != 1 || s.calls("") != 2 {
			s.Errorf("calls: %+v; want one CreateVolume and one DescribeVolumes", s.emu.Statistics().Actions)
		}
		want := backend.Volume{
			ID: first.ID, Name: "pvc-1", Size: 8 * gib, Parameters: map[string]string{"type": "gp3"},
			Topology: []backend.Topology{{zoneKey: testZone}}, Created: first.Created, Detail: first.Detail, Context: map[string]string{},
		}
		if diff := cmp.Diff(want, first); diff != "" {
			s.Error(diff)
		}
		if d := took(func() {
			if again := s.create(p, creation("pvc-1")); again.ID != first.ID {
				s.Errorf("the repeat gave %s; want %s", again.ID, first.ID)
			}
		}); d > 150*time.Millisecond {
			s.Errorf("the repeat took %s", d)
		}
		if again := s.create(s.start(Options{}), creation("pvc-1")); again.ID != first.ID {
			s.Errorf("another process gave %s; want %s", again.ID, first.ID)
		}
		s.wantVolumes(1)
	})
}

// A request with the name of a live volume and another size is refused each time.
func TestCreateVolume_otherRequestUnderANameIsRefusedForEver(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		s.create(p, creation("pvc-1"))
		larger := creation("pvc-1")
		larger.Range.Required = 20 * gib
		for range 4 {
			_, err := p.CreateVolume(s.Context(), larger)
			s.want(err, backend.ErrExists, "20 GiB under the name of 8 GiB")
		}
		parameters := creation("pvc-1")
		parameters.Parameters = map[string]string{"iops": "4000"}
		_, err := p.CreateVolume(s.Context(), parameters)
		s.want(err, backend.ErrExists, "other parameters")
		if !strings.Contains(fmt.Sprint(err), "iops") {
			s.Errorf("%v does not say what differs", err)
		}
		tagged := creation("pvc-1")
		tagged.Parameters = map[string]string{"tagSpecification_1": "a=b"}
		_, err = p.CreateVolume(s.Context(), tagged)
		s.want(err, backend.ErrExists, "other tags")
		elsewhere := creation("pvc-1")
		elsewhere.Topology.Requisite = []backend.Topology{{zoneKey: "us-west-2b"}}
		_, err = p.CreateVolume(s.Context(), elsewhere)
		s.want(err, backend.ErrExists, "another zone")
		s.wantVolumes(1)
	})
}

// After the token has expired, the volume is found by its tag, and the second volume that
// the call created is deleted.
func TestCreateVolume_expiredTokenMakesNoSecondVolume(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		first := s.create(p, creation("pvc-1"))
		time.Sleep(13 * time.Hour)
		if again := s.create(p, creation("pvc-1")); again.ID != first.ID {
			s.Errorf("after 13 hours: %s; want %s", again.ID, first.ID)
		}
		s.wantVolumes(1)
		// A process that died between making the second and taking it away leaves it
		// to the next repeat.
		time.Sleep(13 * time.Hour)
		s.want(within(s.Context(), 3*time.Second, func(ctx context.Context) error {
			_, err := p.CreateVolume(ctx, creation("pvc-1"))
			return err
		}), context.DeadlineExceeded, "the time was too short")
		s.wantVolumes(2)
		if again := s.create(s.start(Options{}), creation("pvc-1")); again.ID != first.ID {
			s.Errorf("after a crash: %s; want %s", again.ID, first.ID)
		}
		s.wantVolumes(1)
	})
}

// A deleted volume's name can be used again, by any process.
func TestCreateVolume_nameOfADeletedVolume(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		seen := map[string]bool{}
		for range 5 {
			v := s.create(p, creation("pvc-1"))
			if seen[v.ID] {
				s.Fatalf("%s again", v.ID)
			}
			seen[v.ID] = true
			s.must(p.DeleteVolume(s.Context(), v.ID))
			s.must(p.DeleteVolume(s.Context(), v.ID))
			p = s.start(Options{})
		}
		larger := creation("pvc-1")
		larger.Range.Required = 20 * gib
		if v := s.create(p, larger); v.Size != 20*gib {
			s.Errorf("got %d bytes", v.Size)
		}
		s.wantVolumes(1)
	})
}

// The reply to CreateVolume is lost, or the process dies after it.
func TestCreateVolume_survivesALostReply(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		s.fault(ec2emu.Fault{Kind: ec2emu.FaultDropReply, Action: "CreateVolume", Count: 2})
		first := s.create(p, creation("pvc-1"))
		s.want(within(s.Context(), 80*time.Millisecond, func(ctx context.Context) error {
			_, err := p.CreateVolume(ctx, creation("pvc-2"))
			return err
		}), context.DeadlineExceeded, "the time was too short")
		second := s.create(s.start(Options{}), creation("pvc-2"))
		if first.ID == second.ID {
			s.Error("two names, one volume")
		}
		s.wantVolumes(2)
	})
}

// Two controllers at once make one volume, with a new, a spent and an expired token.
func TestCreateVolume_twoControllersAtOnce(t *testing.T) {
	o := usual()
	o.World.Knobs.Consistency = world.Consistency{Visible: world.Uniform(0, 2*time.Second), Tags: world.Uniform(0, 2*time.Second), StaleOneIn: 3}
	staged(t, o, func(s *stage) {
		one, other := s.start(Options{}), s.start(Options{})
		for name, before := range map[string]func(name string){
			"fresh": func(string) {},
			"spent": func(name string) { s.must(one.DeleteVolume(s.Context(), s.create(one, creation(name)).ID)) },
			"forgotten": func(name string) {
				s.create(one, creation(name))
				time.Sleep(13 * time.Hour)
			},
		} {
			before(name)
			ids := make([]string, 2)
			var both sync.WaitGroup
			for i, p := range []process{one, other} {
				both.Go(func() { ids[i] = s.create(p, creation(name)).ID })
			}
			both.Wait()
			if ids[0] != ids[1] {
				s.Errorf("%s: %v; want one volume", name, ids)
			}
		}
		s.wantVolumes(3)
	})
}

// A volume that goes into error, or vanishes, ends the wait: the
// message names the key, and repeats do not hammer.
func TestCreateVolume_saysThatTheKeyIsTheProblem(t *testing.T) {
	for kind, limit := range map[world.FaultKind]time.Duration{world.CreateFails: 3 * time.Second, world.CreateVanishes: 15 * time.Second} {
		t.Run(string(kind), func(t *testing.T) {
			staged(t, usual(), func(s *stage) {
				p := s.start(Options{})
				s.volumeFault(world.Fault{Kind: kind, Count: 1})
				r := creation("pvc-1")
				r.Parameters = map[string]string{"encrypted": "true", "kmsKeyId": "alias/locked-away"}
				var err error
				if d := took(func() { _, err = p.CreateVolume(s.Context(), r) }); d > limit {
					s.Errorf("it took %s", d)
				}
				if err == nil || !strings.Contains(err.Error(), "locked-away") && !strings.Contains(err.Error(), "key/") {
					s.Fatalf("got %v; want the key named", err)
				}
				made := s.calls("CreateVolume")
				_, err = p.CreateVolume(s.Context(), r)
				s.want(err, backend.ErrUnavailable, "at once again")
				if s.calls("CreateVolume") != made {
					s.Error("the repeat was sent at once")
				}
				time.Sleep(2 * time.Second)
				s.create(p, r)
				s.wantVolumes(1)
			})
		})
	}
}

// A key whose grant is missing for hours spends many client tokens. When the grant
// is restored the volume is made within minutes, and until then every error names
// the key and EC2 is not asked over and over, not even by a new process.
func TestCreateVolume_afterTheGrantOfTheKeyIsRestored(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		s.change(func(k *world.Knobs) { k.Encryption.UnusableKeys = []string{"*"} })
		r := creation("pvc-1")
		r.Parameters = map[string]string{"encrypted": "true", "kmsKeyId": "alias/locked-away"}
		p := s.start(Options{})
		for range 2 {
			s.emu.Reset()
			for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(30 * time.Second) {
				if _, err := p.CreateVolume(s.Context(), r); err == nil || !strings.Contains(err.Error(), "alias/locked-away") {
					s.Fatalf("%v after the grant was revoked: %v; want the key named", time.Since(began), err)
				}
			}
			if calls := s.calls("CreateVolume"); calls > 36+12+tokenSteps {
				s.Errorf("%d calls of CreateVolume in three hours; want one for each attempt", calls)
			}
			p = s.start(Options{}) // knows nothing of the tokens
		}
		s.change(func(k *world.Knobs) { k.Encryption.UnusableKeys = nil })
		began := time.Now()
		for {
			_, err := p.CreateVolume(s.Context(), r)
			if err == nil {
				break
			}
			if time.Since(began) > 6*time.Minute {
				s.Fatalf("%v after the grant was restored: %v", time.Since(began), err)
			}
			time.Sleep(10 * time.Second)
		}
		s.wantVolumes(1)
		v := s.create(p, r)
		if again := s.create(s.start(Options{}), r); again.ID != v.ID {
			s.Errorf("another process made %s in addition to %s", again.ID, v.ID)
		}
		s.wantVolumes(1)
	})
}

// Windows nodes format with ntfs; a class may spell it as Windows does.
func TestNTFS_isForWindowsNodes(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		node := s.machine()
		for i, name := range []string{"ntfs", "NTFS"} {
			r := creation(fmt.Sprint("pvc-", i))
			r.Capabilities[0].FSType = name
			v := s.create(p, r)
			_, err := p.Attach(s.Context(), v.ID, node, backend.AttachSpec{Capability: r.Capabilities[0]})
			s.must(err)
			r = creation("pvc-wrong")
			r.Capabilities[0].FSType, r.Parameters = name, map[string]string{"blocksize": "4096"}
			_, err = p.CreateVolume(s.Context(), r)
			s.want(err, backend.ErrInvalid, "a block size of mkfs for ntfs")
		}
	})
}

// The guide describes a change of drivers during a creation: this driver finds the volume
// that the AWS EBS CSI driver began. The requests of that driver have other tags, so EC2
// rejects the token, and this driver continues with the next one.
func TestCreateVolume_begunByTheOtherDriver(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		theirs := func(name string) error {
			gp3, size := "gp3", int32(8)
			_, err := s.emu.World().CreateVolume(&world.CreateVolumeRequest{
				ClientToken: token(name, 1), AvailabilityZone: testZone, VolumeType: gp3, Size: &size,
				TagSpecifications: []world.TagSpecification{{ResourceType: "volume", Tags: []world.Tag{
					{Key: "CSIVolumeName", Value: name}, {Key: "ebs.csi.aws.com/cluster", Value: "true"},
				}}},
			})
			return err
		}
		s.must(theirs("pvc-1"))
		s.create(p, creation("pvc-1"))
		s.wantVolumes(1)
		s.create(p, creation("pvc-2"))
		if err := theirs("pvc-2"); err == nil || !strings.Contains(err.Error(), "IdempotentParameterMismatch") {
			s.Errorf("the other driver's request under this driver's token: %v", err)
		}
	})
}

// A volume that describes do not show yet is waited for: the wait
// ends with its context.
func TestCreateVolume_waitsForWhatIsNotVisibleYet(t *testing.T) {
	o := usual()
	o.World.Knobs.Consistency = world.Consistency{Visible: world.Fixed(4 * time.Second), Tags: world.Fixed(time.Second)}
	staged(t, o, func(s *stage) {
		p := s.start(Options{})
		var err error
		if d := took(func() {
			err = within(s.Context(), 300*time.Millisecond, func(ctx context.Context) error {
				_, err := p.CreateVolume(ctx, creation("pvc-1"))
				return err
			})
		}); d > 301*time.Millisecond {
			s.Errorf("it stayed for %s after 300 ms were over", d)
		}
		s.want(err, context.DeadlineExceeded, "300 ms")
		v := s.create(p, creation("pvc-1"))
		if _, err := p.Volume(s.Context(), v.ID); err != nil {
			s.Errorf("the volume just made: %v", err)
		}
		s.wantVolumes(1)
	})
}

// The account is full, but the volume is there.
func TestCreateVolume_findsTheVolumeWhenTheAccountIsFull(t *testing.T) {
	o := usual()
	o.World.Knobs.Tokens.QuotaFirst = true
	o.World.Knobs.Quotas.Volumes = 1
	staged(t, o, func(s *stage) {
		p := s.start(Options{})
		first := s.create(p, creation("pvc-1"))
		if again := s.create(p, creation("pvc-1")); again.ID != first.ID {
			s.Errorf("got %s; want %s", again.ID, first.ID)
		}
		_, err := p.CreateVolume(s.Context(), creation("pvc-2"))
		s.want(err, backend.ErrNoSpace, "a full account")
	})
}

// Each error of EC2 has its code and the next action.
func TestCreateVolume_errorsOfEC2(t *testing.T) {
	for code, want := range map[string]error{
		"InsufficientVolumeCapacity": backend.ErrNoSpace,
		"InvalidParameterValue":      backend.ErrInvalid,
		"UnauthorizedOperation":      backend.ErrDenied,
		"ExpiredToken":               backend.ErrCredentials,
		"InvalidSnapshot.NotFound":   backend.ErrNotFound,
	} {
		staged(t, usual(), func(s *stage) {
			p := s.start(Options{})
			s.fault(ec2emu.Fault{Kind: ec2emu.FaultError, Action: "CreateVolume", Code: code, Message: "injected", Status: 400})
			_, err := p.CreateVolume(s.Context(), creation("pvc-1"))
			s.want(err, want, code)
		})
	}
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		r := creation("pvc-1")
		r.Topology.Requisite = []backend.Topology{{zoneKey: "mars-1a"}}
		_, err := p.CreateVolume(s.Context(), r)
		s.want(err, backend.ErrInvalid, "a zone that does not exist")
	})
}

// 500 volumes by 100 workers keep to the budget: at most 10 describes.
func TestCreateVolume_budgetOf500(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		names := make(chan string)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for name := range names {
					if _, err := p.CreateVolume(s.Context(), creation(name)); err != nil {
						s.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		for i := range 500 {
			names <- fmt.Sprintf("pvc-%d", i)
		}
		close(names)
		all.Wait()
		if total := s.calls(""); total > 510 {
			s.Errorf("%d calls; want at most 510: %+v", total, s.emu.Statistics().Actions)
		}
	})
}

// A rejected request has no effect in EC2.
func TestCreateVolume_refusesBeforeItActs(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		refuse := func(why string, want error, r func(*request)) {
			c := creation("pvc-bad")
			r(&request{&c})
			_, err := p.CreateVolume(s.Context(), c)
			s.want(err, want, why)
		}
		refuse("iops with ratio", backend.ErrInvalid, func(r *request) { r.set("type", "io2", "iops", "500", "iopsPerGB", "5") })
		refuse("a key twice", backend.ErrInvalid, func(r *request) { r.set("type", "gp3", "Type", "io2") })
		refuse("more IOPS than the size allows", backend.ErrOutOfRange, func(r *request) { r.set("iops", "80000") })
		refuse("unknown key", backend.ErrInvalid, func(r *request) { r.set("colour", "blue") })
		refuse("io1 without IOPS", backend.ErrInvalid, func(r *request) { r.set("type", "io1") })
		refuse("a reserved tag", backend.ErrInvalid, func(r *request) { r.set("tagSpecification_1", "CSIVolumeName=x") })
		refuse("a broken template", backend.ErrInvalid, func(r *request) { r.set("tagSpecification_1", "x={{ .PVCName") })
		refuse("a tag to remove", backend.ErrInvalid, func(r *request) { r.MutableParameters = map[string]string{"tagDeletion_1": "x"} })
		refuse("format options of raw block", backend.ErrInvalid, func(r *request) { r.set("blockSize", "4096"); r.Capabilities[0].Block = true })
		refuse("format options of btrfs", backend.ErrInvalid, func(r *request) { r.set("blockSize", "4096"); r.Capabilities[0].FSType = "btrfs" })
		refuse("several writers of a filesystem", backend.ErrInvalid, func(r *request) {
			r.set("type", "io2", "iops", "100")
			r.Capabilities[0].Mode = backend.MultiNodeMultiWriter
		})
		refuse("several nodes of gp3", backend.ErrInvalid, func(r *request) { r.Capabilities[0].Mode = backend.MultiNodeReaderOnly })
		refuse("too large", backend.ErrOutOfRange, func(r *request) { r.Range.Required = 70000 * gib })
		refuse("too large for the type", backend.ErrOutOfRange, func(r *request) { r.set("type", "standard"); r.Range.Required = 1025 * gib })
		refuse("limit below the type's least", backend.ErrOutOfRange, func(r *request) { r.set("type", "st1"); r.Range.Limit = 100 * gib })
		refuse("two zones in one topology", backend.ErrInvalid, func(r *request) {
			r.Topology.Requisite = []backend.Topology{{zoneKey: "us-west-2a", zoneKeyOwn: "us-west-2b"}}
		})
		refuse("a preferred zone that is not possible", backend.ErrInvalid, func(r *request) {
			r.Topology.Preferred = []backend.Topology{{zoneKey: "us-west-2b"}}
		})
		if n := s.calls("CreateVolume"); n != 0 {
			s.Errorf("%d volumes were asked for", n)
		}
	})
}

// Without a required size the volume has the default, within the limit.
func TestCreateVolume_sizeOfARequestWithoutOne(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		for name, c := range map[string]struct {
			give backend.SizeRange
			kind string
			want int64
		}{
			"nothing":          {backend.SizeRange{}, "gp3", 100},
			"limit":            {backend.SizeRange{Limit: 20 * gib}, "gp3", 20},
			"wide limit":       {backend.SizeRange{Limit: 2000 * gib}, "gp3", 100},
			"least of st1":     {backend.SizeRange{Limit: 200 * gib}, "st1", 125},
			"nothing for st1":  {backend.SizeRange{}, "st1", 125},
			"rounded up":       {backend.SizeRange{Required: 8*gib + 1}, "gp3", 9},
			"less than a byte": {backend.SizeRange{Required: 1}, "gp3", 1},
		} {
			r := creation("size " + name)
			r.Range, r.Parameters = c.give, map[string]string{"type": c.kind}
			v, err := p.CreateVolume(s.Context(), r)
			if err != nil || v.Size != c.want*gib {
				s.Errorf("%s: %d GiB, %v; want %d", name, v.Size/gib, err, c.want)
			}
		}
	})
}

// request is one under change.
type request struct{ *guard.CreateRequest }

func (r *request) set(pairs ...string) {
	r.Parameters = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		r.Parameters[pairs[i]] = pairs[i+1]
	}
}
