package world

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWildcard(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "A", false}, {"*", "", true}, {"*", "abc", true},
		{"a*", "abc", true}, {"*c", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abcd", false}, {"a*b*c", "aXbYbZc", true},
		{"?", "ä", true}, {"?", "", false}, {"a?c", "abc", true}, {"a?c", "ac", false}, {`\*`, "*", true}, {`\*`, "x", false},
		{`a\?`, "a?", true}, {`a\?`, "ab", false}, {`\\`, `\`, true}, {"**a", "ba", true}, {"*a?", "aab", true}, {"pvc-*", "pvc-1", true},
	} {
		if got := wildcard(c.pattern, c.text); got != c.want {
			t.Errorf("wildcard(%q, %q) = %t", c.pattern, c.text, got)
		}
	}
}

func TestDescribeVolumes_filters(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	instance := newInstance(t, w, InstanceSpec{Devices: []BootDevice{{Name: "/dev/sdb", Size: 3}}})
	tag := func(value string) func(*CreateVolumeRequest) {
		return func(r *CreateVolumeRequest) {
			r.TagSpecifications = []TagSpecification{{"volume", []Tag{{"CSIVolumeName", value}, {"odd*key", ""}}}}
		}
	}
	one := newVolume(t, w, tag("pvc-1"))
	two := newVolume(t, w, tag("pvc-2"), func(r *CreateVolumeRequest) { r.AvailabilityZone, r.Encrypted = zoneB, ptr(true) })
	managed := newVolume(t, w, func(r *CreateVolumeRequest) { r.Operator = &Operator{"eks.amazonaws.com"} })
	plain := newVolume(t, w, func(r *CreateVolumeRequest) { r.VolumeType, r.Size = "st1", ptr(int32(500)) })
	attach(t, w, one, instance, "/dev/xvdba")
	for name, c := range map[string]struct {
		filters []Filter
		want    []string
	}{
		"by ID":                  {[]Filter{{"volume-id", []string{one, "vol-0123456789abcdef0", "nonsense"}}}, []string{one}},
		"by ID with a wildcard":  {[]Filter{{"volume-id", []string{plain[:len(plain)-1] + "?"}}}, []string{plain}},
		"by tag":                 {[]Filter{{"tag:CSIVolumeName", []string{"pvc-2"}}}, []string{two}},
		"by tags":                {[]Filter{{"tag:CSIVolumeName", []string{"pvc-2", "pvc-1", "pvc-3"}}}, []string{one, two}},
		"by a tag's beginning":   {[]Filter{{"tag:CSIVolumeName", []string{"pvc-*"}}}, []string{one, two}},
		"case counts":            {[]Filter{{"tag:CSIVolumeName", []string{"PVC-1"}}}, nil},
		"by an empty tag":        {[]Filter{{"tag:odd*key", []string{""}}}, []string{one, two}},
		"by the key of a tag":    {[]Filter{{"tag-key", []string{"CSI*"}}}, []string{one, two}},
		"by the value of a tag":  {[]Filter{{"tag-value", []string{"pvc-2"}}}, []string{two}},
		"by its operator":        {[]Filter{{"operator.managed", []string{"true"}}}, []string{managed}},
		"by the operator's name": {[]Filter{{"operator.principal", []string{"eks.*"}}}, []string{managed}},
		"by sort of encryption":  {[]Filter{{"sse-type", []string{"sse-kms"}}}, []string{two}},
		"filters are AND-ed":     {[]Filter{{"tag-key", []string{"CSI*"}}, {"availability-zone", []string{zoneB}}}, []string{two}},
		"by zone ID":             {[]Filter{{"availability-zone-id", []string{"usw2-az2"}}}, []string{two}},
		"by instance":            {[]Filter{{"attachment.instance-id", []string{instance}}, {"size", []string{"10"}}}, []string{one}},
		"by device":              {[]Filter{{"attachment.device", []string{"/dev/xvdba"}}}, []string{one}},
		"by state of attachment": {[]Filter{{"attachment.status", []string{"attached"}}, {"attachment.delete-on-termination", []string{"false"}}}, []string{one}},
		"by state":               {[]Filter{{"status", []string{"available"}}}, []string{two, managed, plain}},
		"by size and type":       {[]Filter{{"size", []string{"500"}}, {"volume-type", []string{"st1"}}}, []string{plain}},
		"by encryption":          {[]Filter{{"encrypted", []string{"true"}}}, []string{two}},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := w.DescribeVolumes(&DescribeVolumesRequest{Filters: c.filters})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range answer.Volumes {
				got = append(got, v.VolumeID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v; want %v", got, c.want)
			}
		})
	}
}

func TestFilters_limits(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	values := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint("v", i)
		}
		return all
	}
	for name, c := range map[string]struct {
		filters []Filter
		code    string
	}{
		"200 values":        {[]Filter{{"volume-id", values(200)}}, ""},
		"201 values":        {[]Filter{{"volume-id", values(201)}}, "FilterLimitExceeded"},
		"50 filters":        {slices.Repeat([]Filter{{"size", []string{"1"}}}, 50), ""},
		"51 filters":        {slices.Repeat([]Filter{{"size", []string{"1"}}}, 51), "FilterLimitExceeded"},
		"unknown":           {[]Filter{{"colour", []string{"red"}}}, "InvalidParameterValue"},
		"no name":           {[]Filter{{"", []string{"red"}}}, "MissingParameter"},
		"no value":          {[]Filter{{"size", nil}}, "MissingParameter"},
		"255 characters":    {[]Filter{{"size", []string{strings.Repeat("ä", 255)}}}, ""},
		"256 characters":    {[]Filter{{"size", []string{strings.Repeat("ä", 256)}}}, "InvalidParameterValue"},
		"tag without a key": {[]Filter{{"tag:", []string{"x"}}}, ""},
	} {
		_, err := w.DescribeVolumes(&DescribeVolumesRequest{Filters: c.filters})
		if got := codeOf(err); got != c.code {
			t.Errorf("%s: %q; want %q", name, got, c.code)
		}
	}
}

// By ID, one that is unknown fails them all; by filter none does.
func TestDescribe_byIDFailsAsAWhole(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	known, unknown := newVolume(t, w), "vol-0123456789abcdef0"
	_, err := w.DescribeVolumes(&DescribeVolumesRequest{VolumeIDs: []string{known, unknown, "vol-0123456789abcdef1"}})
	wantCode(t, err, "InvalidVolume.NotFound")
	if err == nil || !strings.Contains(err.Error(), unknown) || !strings.Contains(err.Error(), "cdef1") || strings.Contains(err.Error(), known) {
		t.Errorf("%v does not name those that are unknown", err)
	}
	_, err = w.DescribeVolumesModifications(&DescribeVolumesModificationsRequest{VolumeIDs: []string{unknown}})
	wantCode(t, err, "InvalidVolume.NotFound")
	_, err = w.DescribeVolumeStatus(&DescribeVolumeStatusRequest{VolumeIDs: []string{unknown}})
	wantCode(t, err, "InvalidVolume.NotFound")
	_, err = w.DescribeSnapshots(&DescribeSnapshotsRequest{SnapshotIDs: []string{"snap-0123456789abcdef0"}})
	wantCode(t, err, "InvalidSnapshot.NotFound")
	_, err = w.DescribeInstances(&DescribeInstancesRequest{InstanceIDs: []string{newInstance(t, w, InstanceSpec{}), "i-0123456789abcdef0"}})
	wantCode(t, err, "InvalidInstanceID.NotFound")
	_, err = w.DescribeInstanceTypes(&DescribeInstanceTypesRequest{InstanceTypes: []string{"z8.large", "m5.large", "z9.large"}})
	wantCode(t, err, "InvalidInstanceType")
	if err == nil || !strings.Contains(err.Error(), "[z8.large, z9.large]") {
		t.Errorf("%v does not name the types that are unknown", err)
	}
	_, err = w.DescribeAvailabilityZones(&DescribeAvailabilityZonesRequest{ZoneNames: []string{zoneA, "mars-1a"}})
	wantCode(t, err, "InvalidParameterValue")
	answer, err := w.DescribeVolumes(&DescribeVolumesRequest{VolumeIDs: []string{known, known}})
	if err != nil || len(answer.Volumes) != 1 {
		t.Errorf("twice the same: %v, %v", answer, err)
	}
}

func TestPages(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	var made []string
	for range 12 {
		made = append(made, newVolume(t, w))
	}
	var got []string
	r := &DescribeVolumesRequest{Page: Page{MaxResults: ptr(int32(5))}}
	for {
		answer, err := w.DescribeVolumes(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range answer.Volumes {
			got = append(got, v.VolumeID)
		}
		if r.NextToken = answer.NextToken; r.NextToken == "" {
			break
		}
		// A resource that is created or deleted between two pages neither repeats nor hides
		// another.
		if _, err := w.DeleteVolume(&DeleteVolumeRequest{VolumeID: got[0]}); err != nil && len(got) == 5 {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, made) {
		t.Errorf("got %v; want %v", got, made)
	}
}

func TestPages_thatAreWrong(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	for range 6 {
		newVolume(t, w)
	}
	first, err := w.DescribeVolumes(&DescribeVolumesRequest{Page: Page{MaxResults: ptr(int32(5))}})
	if err != nil || first.NextToken == "" {
		t.Fatal(first, err)
	}
	size := func(n int32) Page { return Page{MaxResults: &n} }
	for name, c := range map[string]struct {
		r    DescribeVolumesRequest
		code string
	}{
		"4":                      {DescribeVolumesRequest{Page: size(4)}, "InvalidParameterValue"},
		"0":                      {DescribeVolumesRequest{Page: size(0)}, "InvalidParameterValue"},
		"1000":                   {DescribeVolumesRequest{Page: size(1000)}, ""},
		"1001":                   {DescribeVolumesRequest{Page: size(1001)}, ""},
		"together with IDs":      {DescribeVolumesRequest{Page: size(5), VolumeIDs: []string{first.Volumes[0].VolumeID}}, "InvalidParameterCombination"},
		"unknown token":          {DescribeVolumesRequest{Page: Page{NextToken: "nonsense"}}, "InvalidPaginationToken"},
		"token of other filters": {DescribeVolumesRequest{Page: Page{NextToken: first.NextToken}, Filters: []Filter{{"size", []string{"1"}}}}, "InvalidPaginationToken"},
		"token that was changed": {DescribeVolumesRequest{Page: Page{NextToken: "A" + first.NextToken[1:]}}, "InvalidPaginationToken"},
		"token without a size":   {DescribeVolumesRequest{Page: Page{NextToken: first.NextToken}}, ""},
	} {
		_, err := w.DescribeVolumes(&c.r)
		if got := codeOf(err); got != c.code {
			t.Errorf("%s: %q; want %q", name, got, c.code)
		}
	}
	_, err = w.DescribeVolumesModifications(&DescribeVolumesModificationsRequest{Page: size(501)})
	wantCode(t, err, "")
	_, err = w.DescribeSnapshots(&DescribeSnapshotsRequest{Page: Page{NextToken: first.NextToken}})
	wantCode(t, err, "InvalidPaginationToken")
}

func TestDefaultPage_limitsRequestsWithoutAPageSize(t *testing.T) {
	w := start(t, Config{Knobs: Knobs{DefaultPage: 3}})
	for range 4 {
		newVolume(t, w)
	}
	answer, err := w.DescribeVolumes(&DescribeVolumesRequest{})
	if err != nil || len(answer.Volumes) != 3 || answer.NextToken == "" {
		t.Errorf("%d volumes, %v", len(answer.Volumes), err)
	}
}

func TestVisibility_ofWhatWasJustCreated(t *testing.T) {
	knobs := Instant()
	knobs.Consistency.Visible, knobs.Consistency.Tags = Fixed(3*time.Second), Fixed(2*time.Second)
	bubble(t, Config{Knobs: knobs}, func(t *testing.T, w *World) {
		made, err := w.CreateVolume(request("t"))
		if err != nil {
			t.Fatal(err)
		}
		byTag := func() int {
			answer, err := w.DescribeVolumes(&DescribeVolumesRequest{Filters: []Filter{{"tag:CSIVolumeName", []string{"t"}}}})
			if err != nil {
				t.Fatal(err)
			}
			return len(answer.Volumes)
		}
		_, err = w.DescribeVolumes(&DescribeVolumesRequest{VolumeIDs: []string{made.VolumeID}})
		wantCode(t, err, "InvalidVolume.NotFound")
		time.Sleep(3 * time.Second)
		if describe(t, w, made.VolumeID) == nil || byTag() != 0 {
			t.Error("want it by ID and not by tag")
		}
		time.Sleep(2 * time.Second)
		if byTag() != 1 {
			t.Error("not found by tag")
		}
		if _, err := w.ModifyVolume(&ModifyVolumeRequest{VolumeID: made.VolumeID, Size: ptr(int32(20))}); err != nil {
			t.Fatal(err)
		}
		if lastModification(t, w, made.VolumeID) != nil {
			t.Error("the modification is visible at once")
		}
		time.Sleep(3 * time.Second)
		if lastModification(t, w, made.VolumeID) == nil {
			t.Error("the modification is not visible")
		}
	})
}

func TestStaleReads_showThePreviousStateForAWhile(t *testing.T) {
	knobs := Instant()
	knobs.Consistency.StaleOneIn, knobs.Consistency.StaleFor = 2, Span(time.Second)
	bubble(t, Config{Knobs: knobs, Seed: 7}, func(t *testing.T, w *World) {
		volume, instance := newVolume(t, w), newInstance(t, w, InstanceSpec{})
		time.Sleep(time.Minute)
		attach(t, w, volume, instance, "/dev/sdf")
		count := func() (states, mappings map[int]int) {
			states, mappings = map[int]int{}, map[int]int{}
			for range 100 {
				states[len(describe(t, w, volume).Attachments)]++
				answer, err := w.DescribeInstances(&DescribeInstancesRequest{InstanceIDs: []string{instance}})
				if err != nil {
					t.Fatal(err)
				}
				mappings[len(answer.Reservations[0].Instances[0].BlockDevices)]++
			}
			return states, mappings
		}
		time.Sleep(10 * time.Millisecond)
		detach(t, w, volume, instance, false)
		if states, mappings := count(); states[0] < 30 || states[1] < 30 || mappings[1] < 30 || mappings[2] < 30 {
			t.Errorf("volumes %v, mappings %v; want some of each", states, mappings)
		}
		time.Sleep(time.Second)
		if states, mappings := count(); states[0] != 100 || mappings[1] != 100 {
			t.Errorf("later: volumes %v, mappings %v", states, mappings)
		}
	})
}

func TestTags(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	volume := newVolume(t, w)
	snapshot := snap(t, w, volume)
	if _, err := w.CreateTags(&CreateTagsRequest{ResourceIDs: []string{volume, snapshot}, Tags: []Tag{{"a", "1"}, {"b", ""}, {"c", "3"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateTags(&CreateTagsRequest{ResourceIDs: []string{volume}, Tags: []Tag{{"a", "2"}}}); err != nil {
		t.Fatal(err)
	}
	rest := func(id string) string {
		answer, err := w.DescribeTags(&DescribeTagsRequest{Filters: []Filter{{"resource-id", []string{id}}}})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, one := range answer.Tags {
			text += one.ResourceType[:1] + ":" + one.Key + "=" + one.Value + " "
		}
		return text
	}
	if got := rest(volume) + rest(snapshot); got != "v:a=2 v:b= v:c=3 s:a=1 s:b= s:c=3 " {
		t.Error(got)
	}
	remove := func(tags ...TagToDelete) {
		t.Helper()
		if _, err := w.DeleteTags(&DeleteTagsRequest{ResourceIDs: []string{volume}, Tags: tags}); err != nil {
			t.Error(err)
		}
	}
	remove(TagToDelete{"a", ptr("")}, TagToDelete{"b", ptr("x")}, TagToDelete{"z", nil})
	if got := rest(volume); got != "v:a=2 v:b= v:c=3 " {
		t.Error(got)
	}
	remove(TagToDelete{"a", nil}, TagToDelete{"b", ptr("")})
	if got := rest(volume); got != "v:c=3 " {
		t.Error(got)
	}
	remove()
	if got := rest(volume); got != "" {
		t.Error(got)
	}
}

func TestCreateTags_onAllOrOnNone(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	volume := newVolume(t, w)
	many := make([]string, 1001)
	for i := range many {
		many[i] = volume
	}
	for name, c := range map[string]struct {
		ids  []string
		tags []Tag
		code string
	}{
		"one is unknown": {[]string{volume, "vol-0123456789abcdef0"}, []Tag{{"a", "b"}}, "InvalidVolume.NotFound"},
		"no resource":    {nil, []Tag{{"a", "b"}}, "MissingParameter"},
		"too many":       {many, []Tag{{"a", "b"}}, "InvalidParameterValue"},
		"no tag":         {[]string{volume}, nil, "MissingParameter"},
		"another kind":   {[]string{"sg-0123456789abcdef0"}, []Tag{{"a", "b"}}, "InvalidID"},
		"reserved":       {[]string{volume}, []Tag{{"AWS:a", "b"}}, "InvalidParameterValue"},
	} {
		_, err := w.CreateTags(&CreateTagsRequest{ResourceIDs: c.ids, Tags: c.tags})
		if got := codeOf(err); got != c.code {
			t.Errorf("%s: %q; want %q", name, got, c.code)
		}
	}
	if n := len(describe(t, w, volume).Tags); n != 0 {
		t.Errorf("%d tags", n)
	}
}

func TestImpairedVolume_untilIOIsEnabled(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	id := newVolume(t, w)
	if err := w.Impair(id, true); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		answer, err := w.DescribeVolumeStatus(&DescribeVolumeStatusRequest{Filters: []Filter{{"volume-status.status", []string{"impaired"}}}})
		if err != nil {
			t.Fatal(err)
		}
		return len(answer.Statuses)
	}
	if count() != 1 {
		t.Error("not impaired")
	}
	if _, err := w.ModifyVolumeAttribute(&ModifyVolumeAttributeRequest{VolumeID: id, AutoEnableIO: &BoolValue{ptr(true)}}); err != nil || count() != 0 {
		t.Error(err)
	}
}
