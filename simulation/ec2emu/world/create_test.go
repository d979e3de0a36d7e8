package world

import (
	"strings"
	"testing"
	"time"
)

func TestCreateVolume_validates(t *testing.T) {
	w := start(t, Config{Knobs: Instant(), Zones: append(threeZones("us-west-2"),
		Zone{Name: "us-west-2-old-1a", ID: "usw2-old1-az1", Limits: map[string]TypeLimits{
			"gp3": {MinSize: 1, MaxSize: 16384, MinIOPS: 3000, MaxIOPS: 16000, IOPSPerGiB: 500, DefaultIOPS: 3000, MinThroughput: 125, MaxThroughput: 1000},
		}}, Zone{Name: "us-west-2-lax-1a", ID: "usw2-lax1-az1", NotOptedIn: true})})
	n := func(v int32) *int32 { return &v }
	manyTags := make([]Tag, 51)
	for i := range manyTags {
		manyTags[i] = Tag{Key: "k" + strings.Repeat("x", i), Value: "v"}
	}
	tagged := func(tags ...Tag) func(*CreateVolumeRequest) {
		return func(r *CreateVolumeRequest) { r.TagSpecifications = []TagSpecification{{"volume", tags}} }
	}
	shaped := func(kind string, size int32, iops, throughput *int32) func(*CreateVolumeRequest) {
		return func(r *CreateVolumeRequest) {
			r.VolumeType, r.Size, r.IOPS, r.Throughput = kind, &size, iops, throughput
		}
	}
	for name, c := range map[string]struct {
		change func(*CreateVolumeRequest)
		code   string
		text   string
	}{
		"gp3":                          {shaped("gp3", 1, nil, nil), "", ""},
		"gp3, largest":                 {shaped("gp3", 65536, n(80000), n(2000)), "", ""},
		"gp3, too large":               {shaped("gp3", 65537, nil, nil), "InvalidParameterValue", "maximum is 65536GiB"},
		"gp3, nothing":                 {shaped("gp3", 0, nil, nil), "InvalidParameterValue", "minimum is 1GiB"},
		"gp3, few iops":                {shaped("gp3", 100, n(2999), nil), "InvalidParameterValue", "too low; minimum is 3000"},
		"gp3, many iops":               {shaped("gp3", 1000, n(80001), nil), "InvalidParameterValue", "iops of 80001 is too high; maximum is 80000"},
		"gp3, iops at the ratio":       {shaped("gp3", 160, n(80000), nil), "", ""},
		"gp3, iops above the ratio":    {shaped("gp3", 159, n(80000), nil), "InvalidParameterValue", "ratio"},
		"gp3, base iops on 1 GiB":      {shaped("gp3", 1, n(3000), nil), "", ""},
		"gp3, little throughput":       {shaped("gp3", 10, nil, n(124)), "InvalidParameterValue", "minimum is 125"},
		"gp3, much throughput":         {shaped("gp3", 1000, n(80000), n(2001)), "InvalidParameterValue", "maximum is 2000"},
		"gp3, throughput at the ratio": {shaped("gp3", 100, n(8000), n(2000)), "", ""},
		"gp3, throughput above it":     {shaped("gp3", 100, n(7999), n(2000)), "InvalidParameterValue", "0.25"},
		"gp2":                          {shaped("gp2", 16384, nil, nil), "", ""},
		"gp2 with iops":                {shaped("gp2", 10, n(3000), nil), "InvalidParameterCombination", "parameter iops is not supported"},
		"gp2 with throughput":          {shaped("gp2", 10, nil, n(125)), "InvalidParameterCombination", "throughput"},
		"gp2, too large":               {shaped("gp2", 16385, nil, nil), "InvalidParameterValue", "16384"},
		"io1":                          {shaped("io1", 4, n(200), nil), "", ""},
		"io1 without iops":             {shaped("io1", 4, nil, nil), "MissingParameter", "iops"},
		"io1, small":                   {shaped("io1", 3, n(100), nil), "InvalidParameterValue", "minimum is 4GiB"},
		"io1 above the ratio":          {shaped("io1", 4, n(201), nil), "InvalidParameterValue", "ratio"},
		"io1, most":                    {shaped("io1", 1280, n(64000), nil), "", ""},
		"io1, more":                    {shaped("io1", 16384, n(64001), nil), "InvalidParameterValue", "maximum is 64000"},
		"io1 with throughput":          {shaped("io1", 4, n(100), n(125)), "InvalidParameterCombination", "throughput"},
		"io2":                          {shaped("io2", 256, n(256000), nil), "", ""},
		"io2 above the ratio":          {shaped("io2", 255, n(256000), nil), "InvalidParameterValue", "ratio"},
		"io2, more":                    {shaped("io2", 65536, n(256001), nil), "InvalidParameterValue", "256K IOPS"},
		"io2, few iops":                {shaped("io2", 4, n(99), nil), "InvalidParameterValue", "minimum is 100"},
		"st1":                          {shaped("st1", 125, nil, nil), "", ""},
		"st1, small":                   {shaped("st1", 124, nil, nil), "InvalidParameterValue", "minimum is 125GiB"},
		"sc1, large":                   {shaped("sc1", 16385, nil, nil), "InvalidParameterValue", "maximum is 16384GiB"},
		"sc1 with iops":                {shaped("sc1", 125, n(250), nil), "InvalidParameterCombination", "iops"},
		"standard":                     {shaped("standard", 1024, nil, nil), "", ""},
		"standard, large":              {shaped("standard", 1025, nil, nil), "InvalidParameterValue", "1024"},
		"unknown type":                 {shaped("gp9", 10, nil, nil), "UnknownVolumeType", "gp9"},
		"no type is gp2":               {shaped("", 20000, nil, nil), "InvalidParameterValue", "16384"},
		"no size":                      {func(r *CreateVolumeRequest) { r.Size = nil }, "MissingParameter", "size"},
		"no zone":                      {func(r *CreateVolumeRequest) { r.AvailabilityZone = "" }, "MissingParameter", "availabilityZone"},
		"zone by ID":                   {func(r *CreateVolumeRequest) { r.AvailabilityZone, r.AvailabilityZoneID = "", "usw2-az2" }, "", ""},
		"two zones":                    {func(r *CreateVolumeRequest) { r.AvailabilityZoneID = "usw2-az1" }, "InvalidParameterCombination", ""},
		"unknown zone":                 {func(r *CreateVolumeRequest) { r.AvailabilityZone = "mars-1a" }, "InvalidAvailabilityZone", "mars-1a"},
		"zone not opted in":            {func(r *CreateVolumeRequest) { r.AvailabilityZone = "us-west-2-lax-1a" }, "InvalidAvailabilityZone", ""},
		"zone with older limits": {func(r *CreateVolumeRequest) {
			r.AvailabilityZone, r.Size, r.IOPS = "us-west-2-old-1a", n(1000), n(16001)
		}, "InvalidParameterValue", "maximum is 16000"},
		"multi-attach on gp3":     {func(r *CreateVolumeRequest) { r.MultiAttachEnabled = ptr(true) }, "InvalidParameterCombination", "Multi-Attach"},
		"key without encryption":  {func(r *CreateVolumeRequest) { r.KMSKeyID = "alias/mine" }, "InvalidParameterDependency", "Encrypted"},
		"malformed outpost":       {func(r *CreateVolumeRequest) { r.OutpostARN = "op-1" }, "InvalidParameterValue", "outpostArn"},
		"rate without snapshot":   {func(r *CreateVolumeRequest) { r.VolumeInitializationRate = n(100) }, "InvalidParameterDependency", "SnapshotId"},
		"malformed snapshot":      {func(r *CreateVolumeRequest) { r.SnapshotID = "snap-1" }, "InvalidSnapshotID.Malformed", ""},
		"unknown snapshot":        {func(r *CreateVolumeRequest) { r.SnapshotID = "snap-0123456789abcdef0" }, "InvalidSnapshot.NotFound", ""},
		"long token":              {func(r *CreateVolumeRequest) { r.ClientToken = strings.Repeat("t", 65) }, "InvalidParameterValue", "Client token"},
		"longest token":           {func(r *CreateVolumeRequest) { r.ClientToken = strings.Repeat("t", 64) }, "", ""},
		"tags for something else": {func(r *CreateVolumeRequest) { r.TagSpecifications = []TagSpecification{{"snapshot", nil}} }, "InvalidParameterValue", "snapshot"},
		"tag without key":         {tagged(Tag{"", "v"}), "InvalidTagKey.Malformed", ""},
		"longest tag":             {tagged(Tag{strings.Repeat("ä", 128), strings.Repeat("ß", 256)}), "", ""},
		"long key":                {tagged(Tag{strings.Repeat("k", 129), ""}), "InvalidTagKey.Malformed", ""},
		"long value":              {tagged(Tag{"k", strings.Repeat("v", 257)}), "InvalidParameterValue", "256"},
		"reserved key":            {tagged(Tag{"aws:thing", "v"}), "InvalidParameterValue", "reserved"},
		"key twice":               {tagged(Tag{"k", "a"}, Tag{"k", "b"}), "InvalidParameterValue", "Duplicate"},
		"50 tags":                 {tagged(manyTags[:50]...), "", ""},
		"51 tags":                 {tagged(manyTags...), "TagLimitExceeded", "50"},
		"dry run":                 {func(r *CreateVolumeRequest) { r.DryRun = true }, "DryRunOperation", ""},
		"dry run of a mistake":    {func(r *CreateVolumeRequest) { r.DryRun, r.VolumeType = true, "gp9" }, "UnknownVolumeType", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &CreateVolumeRequest{AvailabilityZone: zoneA, Size: n(10), VolumeType: "gp3"}
			c.change(r)
			_, err := w.CreateVolume(r)
			wantCode(t, err, c.code)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v; want %q in it", err, c.text)
			}
		})
	}
}

// The reference driver finds out what a zone allows by a dry run that must
// fail, and reads the maximum in the text.
func TestCreateVolume_answersTheProbeForIOPS(t *testing.T) {
	w := start(t, Config{})
	for kind, text := range map[string]string{
		"gp3": "iops of 2147483647 is too high; maximum is 80000.",
		"io1": "iops of 2147483647 is too high; maximum is 64000.",
		"io2": "256K IOPS",
		"gp2": "parameter iops is not supported",
	} {
		_, err := w.CreateVolume(&CreateVolumeRequest{
			DryRun: true, AvailabilityZone: zoneA, VolumeType: kind, Size: ptr(int32(4)), IOPS: ptr(int32(2147483647)),
		})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v; want %q in it", kind, err, text)
		}
	}
}

func TestCreateVolume_showsWhatTheTypeHas(t *testing.T) {
	w := start(t, Config{Knobs: Knobs{Encryption: Encryption{ByDefault: true}}})
	for _, c := range []struct {
		kind             string
		size             int32
		iops, throughput int32
	}{{"gp3", 10, 3000, 125}, {"gp2", 10, 100, 0}, {"gp2", 1000, 3000, 0}, {"gp2", 6000, 16000, 0}, {"st1", 125, 0, 0}} {
		v, err := w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneA, VolumeType: c.kind, Size: &c.size})
		if err != nil {
			t.Fatal(err)
		}
		if (v.IOPS == nil) != (c.iops == 0) || (v.IOPS != nil && *v.IOPS != c.iops) {
			t.Errorf("%s of %d GiB: iops %v", c.kind, c.size, v.IOPS)
		}
		if (v.Throughput == nil) != (c.throughput == 0) {
			t.Errorf("%s: throughput %v", c.kind, v.Throughput)
		}
		if !v.Encrypted || v.KMSKeyID == "" {
			t.Errorf("%s: not encrypted", c.kind)
		}
	}
}

func request(token string, change ...func(*CreateVolumeRequest)) *CreateVolumeRequest {
	r := &CreateVolumeRequest{
		AvailabilityZone: zoneA, Size: ptr(int32(10)), VolumeType: "gp3", ClientToken: token,
		TagSpecifications: []TagSpecification{{"volume", []Tag{{"CSIVolumeName", token}, {"a", "b"}}}},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

const (
	otherParameters = "Parameters on this idempotent request are inconsistent"
	alreadyDeleted  = "associated with a resource that is already deleted"
)

func wantMismatch(t *testing.T, err error, text string) {
	t.Helper()
	wantCode(t, err, "IdempotentParameterMismatch")
	if err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%v; want %q in it", err, text)
	}
}

func TestClientToken(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		first, err := w.CreateVolume(request("t"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.CreateVolume(request("t", func(r *CreateVolumeRequest) {
			tags := r.TagSpecifications[0].Tags
			tags[0], tags[1] = tags[1], tags[0]
		}))
		if err != nil || again.VolumeID != first.VolumeID {
			t.Fatalf("again: %v, %v", again, err)
		}
		waitState(t, w, first.VolumeID, available)
		if again, err = w.CreateVolume(request("t")); err != nil || again.State != available {
			t.Fatalf("when available: %v, %v", again, err)
		}
		_, err = w.CreateVolume(request("t", func(r *CreateVolumeRequest) { r.Size = ptr(int32(11)) }))
		wantMismatch(t, err, otherParameters)
		if _, err := w.DeleteVolume(&DeleteVolumeRequest{VolumeID: first.VolumeID}); err != nil {
			t.Fatal(err)
		}
		_, err = w.CreateVolume(request("t"))
		wantMismatch(t, err, alreadyDeleted)
		time.Sleep(12*time.Hour + time.Second)
		if again, err = w.CreateVolume(request("t")); err != nil || again.VolumeID == first.VolumeID {
			t.Fatalf("after its life: %v, %v", again, err)
		}
	})
}

func TestClientToken_whoseOrderOfTagsCounts(t *testing.T) {
	w := start(t, Config{Knobs: Knobs{Tokens: TokenKnobs{TagOrder: true}}})
	if _, err := w.CreateVolume(request("t")); err != nil {
		t.Fatal(err)
	}
	_, err := w.CreateVolume(request("t", func(r *CreateVolumeRequest) {
		tags := r.TagSpecifications[0].Tags
		tags[0], tags[1] = tags[1], tags[0]
	}))
	wantMismatch(t, err, otherParameters)
}

func TestClientToken_atTheQuota(t *testing.T) {
	for _, flawed := range []bool{false, true} {
		w := start(t, Config{Knobs: Knobs{Quotas: Quotas{Volumes: 1}, Tokens: TokenKnobs{QuotaFirst: flawed}}})
		first, err := w.CreateVolume(request("t"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.CreateVolume(request("t"))
		if flawed {
			wantCode(t, err, "VolumeLimitExceeded")
		} else if err != nil || again.VolumeID != first.VolumeID {
			t.Errorf("again: %v, %v", again, err)
		}
		_, err = w.CreateVolume(request("other"))
		wantCode(t, err, "VolumeLimitExceeded")
	}
}

func TestQuotas(t *testing.T) {
	w := start(t, Config{Knobs: Knobs{Quotas: Quotas{StorageGiB: 100, IOPS: 1000, ModifiedGiB: 50}, Cooldown: CooldownOff,
		Times: Times{Modify: Fixed(time.Hour)}}})
	provisioned := func(iops int32) *CreateVolumeRequest {
		return &CreateVolumeRequest{AvailabilityZone: zoneA, VolumeType: "io2", Size: ptr(int32(10)), IOPS: &iops}
	}
	_, err := w.CreateVolume(provisioned(1001))
	wantCode(t, err, "MaxIOPSLimitExceeded")
	_, err = w.CreateVolume(provisioned(1000))
	wantCode(t, err, "")
	_, err = w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneA, Size: ptr(int32(91))})
	wantCode(t, err, "VolumeLimitExceeded")
	id := newVolume(t, w)
	_, err = w.ModifyVolume(&ModifyVolumeRequest{VolumeID: id, Size: ptr(int32(51))})
	wantCode(t, err, "VolumeModificationSizeLimitExceeded")
}

func TestCreateVolume_withAKeyThatCannotBeUsed(t *testing.T) {
	for _, visibly := range []bool{false, true} {
		bubble(t, Config{Knobs: Knobs{
			Times: Times{Create: Fixed(time.Second)}, Encryption: Encryption{UnusableKeys: []string{"bad"}, FailVisibly: visibly},
		}}, func(t *testing.T, w *World) {
			v, err := w.CreateVolume(request("t", func(r *CreateVolumeRequest) { r.Encrypted, r.KMSKeyID = ptr(true), "bad" }))
			if err != nil || v.State != creating {
				t.Fatal(v, err)
			}
			time.Sleep(time.Second)
			now := describe(t, w, v.VolumeID)
			if visibly && (now == nil || now.State != failed) || !visibly && now != nil {
				t.Errorf("visibly = %t: %+v", visibly, now)
			}
			_, err = w.CreateVolume(request("t", func(r *CreateVolumeRequest) { r.Encrypted, r.KMSKeyID = ptr(true), "bad" }))
			wantMismatch(t, err, alreadyDeleted)
		})
	}
}

func TestCreateVolume_inAZoneWithoutRoom(t *testing.T) {
	w := start(t, Config{Knobs: Knobs{FullZones: []string{zoneA}}})
	_, err := w.CreateVolume(request("t"))
	wantCode(t, err, "InsufficientVolumeCapacity")
	if _, err := w.CreateVolume(request("t", func(r *CreateVolumeRequest) { r.AvailabilityZone = zoneB })); err != nil {
		t.Error(err)
	}
}

func TestDeleteVolume_thatARuleRetains(t *testing.T) {
	w := start(t, Config{Knobs: Knobs{Retain: true}})
	id := newVolume(t, w)
	if _, err := w.DeleteVolume(&DeleteVolumeRequest{VolumeID: id}); err != nil {
		t.Fatal(err)
	}
	_, err := w.DeleteVolume(&DeleteVolumeRequest{VolumeID: id})
	wantCode(t, err, "InvalidVolume.NotFound")
	if kept := w.Retained(); len(kept) != 1 || kept[0] != id {
		t.Fatalf("retained %v", kept)
	}
	if err := w.Restore(id); err != nil || describe(t, w, id).State != available {
		t.Error(err)
	}
}

func TestDeleteVolume_validates(t *testing.T) {
	w := start(t, Config{Knobs: Bench()})
	made, err := w.CreateVolume(request("t"))
	if err != nil {
		t.Fatal(err)
	}
	for id, code := range map[string]string{
		"": "MissingParameter", "vol-": "InvalidVolumeID.Malformed", "i-0123456789abcdef0": "InvalidVolumeID.Malformed",
		"vol-0123456789ABCDEF0": "InvalidVolumeID.Malformed", "vol-01234567": "InvalidVolume.NotFound",
		"vol-0123456789abcdef0": "InvalidVolume.NotFound", made.VolumeID: "IncorrectState",
	} {
		_, err := w.DeleteVolume(&DeleteVolumeRequest{VolumeID: id})
		if got := codeOf(err); got != code {
			t.Errorf("%q: %s; want %s", id, got, code)
		}
	}
}

// EC2 answers with the key of an alias (CreateVolume, KmsKeyId).
func TestCreateVolume_answersWithTheARNOfTheKey(t *testing.T) {
	const arn = "arn:aws:kms:us-west-2:123456789012:"
	w := start(t, Config{Knobs: Instant()})
	shown := func(key string) string {
		return describe(t, w, newVolume(t, w, func(r *CreateVolumeRequest) { r.Encrypted, r.KMSKeyID = ptr(true), key })).KMSKeyID
	}
	mine := shown("alias/mine")
	if !strings.HasPrefix(mine, arn+"key/") {
		t.Errorf("the alias is shown as %s", mine)
	}
	for key, want := range map[string]string{
		arn + "alias/mine":                     mine,
		"alias/mine":                           mine,
		mine:                                   mine,
		strings.TrimPrefix(mine, arn+"key/"):   mine,
		"0a1b2c3d-0000-4000-8000-000000000000": arn + "key/0a1b2c3d-0000-4000-8000-000000000000",
	} {
		if got := shown(key); got != want {
			t.Errorf("%s is shown as %s, not %s", key, got, want)
		}
	}
	if other := shown("alias/other"); other == mine {
		t.Errorf("two aliases have the key %s", other)
	}
}
