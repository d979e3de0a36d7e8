package lifecycle_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

func TestQuestions_everyCode(t *testing.T) {
	for code := codes.Code(1); code <= 16; code++ {
		failure := answer(code)
		absent, unserved := code == codes.NotFound, code == codes.Unimplemented
		if lifecycle.IsAbsent(failure) != absent || lifecycle.Rejects(failure) != (code == codes.InvalidArgument) ||
			lifecycle.UndoneWithoutCall(failure, false) != absent || lifecycle.UndoneWithoutCall(failure, true) != (absent || unserved) {
			t.Errorf("%s", code)
		}
	}
	if other := errors.New("the pipe broke"); lifecycle.IsAbsent(other) || lifecycle.Rejects(other) || lifecycle.UndoneWithoutCall(other, true) {
		t.Error("an error without an answer says nothing")
	}
}

func TestCheckSnapshotAnswer_everyReason(t *testing.T) {
	handle := func(id string) *string { return &id }
	dynamic := &snapshotv1.VolumeSnapshotContent{}
	dynamic.Spec.Source.VolumeHandle = handle("v")
	recorded := dynamic.DeepCopy()
	recorded.Status = &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: handle("s")}
	static := &snapshotv1.VolumeSnapshotContent{}
	static.Spec.Source.SnapshotHandle = handle("s")
	for _, row := range []struct {
		content *snapshotv1.VolumeSnapshotContent
		answer  *csi.Snapshot
		want    string
	}{
		{dynamic, &csi.Snapshot{SnapshotId: "s", SourceVolumeId: "v", SizeBytes: 1}, ""},
		{dynamic, &csi.Snapshot{SnapshotId: "s"}, ""},
		{recorded, &csi.Snapshot{SnapshotId: "s"}, ""},
		{static, &csi.Snapshot{SnapshotId: "s", SourceVolumeId: "any"}, ""},
		{dynamic, &csi.Snapshot{}, "without a snapshot_id"},
		{recorded, &csi.Snapshot{SnapshotId: "t"}, `is about "s"`},
		{static, &csi.Snapshot{SnapshotId: "t"}, `is about "s"`},
		{dynamic, &csi.Snapshot{SnapshotId: "s", SourceVolumeId: "w"}, `asked for was one of "v"`},
		{static, &csi.Snapshot{SnapshotId: "s", SizeBytes: -1}, "has -1 bytes"},
	} {
		expect(t, row.want, lifecycle.CheckSnapshotAnswer(row.content, row.answer), row.want)
	}
}

func TestFindSnapshotTwin(t *testing.T) {
	own := lifecycle.SnapshotContent{Name: "a", Driver: "d", Handle: "s", Deletes: true}
	for want, others := range map[string][]lifecycle.SnapshotContent{
		"":      {own, {Name: "b", Driver: "e", Handle: "s"}, {Name: "c", Driver: "d", Handle: "t"}, {Name: "e", Driver: "d"}, {Name: "f", Driver: "d", Handle: "s", Deletes: true}},
		"keeps": {own, {Name: "f", Driver: "d", Handle: "s", Deletes: true}, {Name: "keeps", Driver: "d", Handle: "s"}},
	} {
		if got := lifecycle.FindSnapshotTwin(slices.Values(others), own); got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
}

func TestCheckNewSnapshot(t *testing.T) {
	own := lifecycle.SnapshotContent{Name: "a", Driver: "d", Handle: "s"}
	for want, others := range map[string][]lifecycle.SnapshotContent{
		"":         {own, {Name: "b", Driver: "e", Handle: "s"}, {Name: "c", Driver: "d", Handle: "t"}, {Name: "e", Driver: "d"}},
		"\"has\"":  {own, {Name: "has", Driver: "d", Handle: "s"}},
		"\"goes\"": {own, {Name: "goes", Driver: "d", Handle: "s", Deletes: true}},
	} {
		err := lifecycle.CheckNewSnapshot(slices.Values(others), own)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSnapshotTime(t *testing.T) {
	now := time.Unix(2000, 0)
	for _, row := range []struct {
		answered *timestamppb.Timestamp
		want     time.Time
	}{{nil, now}, {&timestamppb.Timestamp{}, now}, {&timestamppb.Timestamp{Seconds: -5}, now}, {&timestamppb.Timestamp{Nanos: -1}, now}, {timestamppb.New(time.Unix(7, 0)), time.Unix(7, 0)}} {
		if got := lifecycle.SnapshotTime(row.answered, now); !got.Equal(row.want) {
			t.Errorf("%v: %s", row.answered, got)
		}
	}
}
