package cloud_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const (
	emulatedInstance = "i-0123456789abcdef0"
	emulatedZone     = "us-west-2a"
)

// tap is a transport that keeps the last answer's body.
type tap struct {
	next http.RoundTripper
	body []byte
}

func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	t.body, err = io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(t.body))
	return answer, err
}

// emulated is the SDK's client of a fresh emulator with one instance.
func emulated(t *testing.T, o ec2emu.Options) (*ec2.Client, *tap, *ec2emu.Server) {
	t.Helper()
	server, err := ec2emu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := server.World().RunInstance(world.InstanceSpec{ID: emulatedInstance, Type: "m5.large", Zone: emulatedZone}); err != nil {
		t.Fatal(err)
	}
	transport := &tap{next: server.RoundTripper()}
	return ec2.New(ec2.Options{
		Region: "us-west-2", BaseEndpoint: aws.String("http://ec2.emulated"),
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		HTTPClient:  &http.Client{Transport: transport},
	}), transport, server
}

// leaves are the texts of the elements of an answer that have no elements
// below them; SDKs need not show the request ID, nor that an action was done.
func leaves(t *testing.T, body []byte) []string {
	t.Helper()
	var texts []string
	var text strings.Builder
	leaf := false
	for decoder := xml.NewDecoder(bytes.NewReader(body)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			slices.Sort(texts)
			return texts
		}
		if err != nil {
			t.Fatalf("answer %s: %v", body, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			text.Reset()
			leaf = token.Name.Local != "requestId" && token.Name.Local != "return"
		case xml.CharData:
			text.Write(token)
		case xml.EndElement:
			if leaf && text.Len() > 0 {
				texts = append(texts, text.String())
			}
			leaf = false
		}
	}
}

// values are the texts of everything that an output of the SDK holds.
func values(output any) []string {
	texts := appendValues(nil, reflect.ValueOf(output))
	slices.Sort(texts)
	return texts
}

func appendValues(texts []string, v reflect.Value) []string {
	switch at, isTime := v.Interface().(time.Time); {
	case isTime:
		return append(texts, at.UTC().Format("2006-01-02T15:04:05.000Z"))
	case v.Type() == reflect.TypeFor[middleware.Metadata]():
		return texts
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			texts = appendValues(texts, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			texts = appendValues(texts, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				texts = appendValues(texts, v.Field(i))
			}
		}
	default:
		if text := fmt.Sprint(v.Interface()); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// TestSDK_decodesEveryAction calls every action with the real SDK, in the
// order of a volume's life: each element of the answer must turn up in some
// field of the SDK's output, so that none is misspelled or misplaced.
func TestSDK_decodesEveryAction(t *testing.T) {
	ctx := t.Context()
	client, transport, _ := emulated(t, ec2emu.Options{World: world.Config{Knobs: world.Instant()}})
	called := map[string]bool{}
	check := func(action string, output any, err error) {
		t.Helper()
		called[action] = true
		if err != nil {
			t.Fatalf("%s: %v", action, err)
		}
		want, got := leaves(t, transport.body), values(output)
		if len(want) == 0 {
			return // actions without output
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: elements of the answer (-), values of the SDK's output (+):\n%s\n%s", action, diff, transport.body)
		}
	}

	volume, err := client.CreateVolume(ctx, &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String(emulatedZone), Size: aws.Int32(8), VolumeType: types.VolumeTypeGp3,
		Iops: aws.Int32(4000), Throughput: aws.Int32(250), Encrypted: aws.Bool(true), ClientToken: aws.String("token-1"),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: tagsOf("CSIVolumeName", "pvc-1", "empty", "")}},
	})
	check("CreateVolume", volume, err)
	if *volume.Size != 8 || *volume.Iops != 4000 || *volume.Throughput != 250 || !*volume.Encrypted || len(volume.Tags) != 2 {
		t.Errorf("CreateVolume: %+v", volume)
	}
	id := volume.VolumeId
	described, err := client.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: filters("tag:CSIVolumeName", "pvc-1")})
	check("DescribeVolumes", described, err)
	if len(described.Volumes) != 1 || described.Volumes[0].State != types.VolumeStateAvailable {
		t.Errorf("DescribeVolumes: %+v", described.Volumes)
	}

	attachment, err := client.AttachVolume(ctx, &ec2.AttachVolumeInput{
		VolumeId: id, InstanceId: aws.String(emulatedInstance), Device: aws.String("/dev/xvdaa"),
	})
	check("AttachVolume", attachment, err)
	if *attachment.Device != "/dev/xvdaa" || attachment.State == "" {
		t.Errorf("AttachVolume: %+v", attachment)
	}
	instances, err := client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filters("instance-id", emulatedInstance)})
	check("DescribeInstances", instances, err)
	if !slices.ContainsFunc(instances.Reservations[0].Instances[0].BlockDeviceMappings, func(m types.InstanceBlockDeviceMapping) bool {
		return *m.DeviceName == "/dev/xvdaa" && *m.Ebs.VolumeId == *id && m.Ebs.Status == types.AttachmentStatusAttached
	}) {
		t.Errorf("DescribeInstances does not show the attachment: %s", transport.body)
	}
	kinds, err := client.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{types.InstanceTypeM5Large}})
	check("DescribeInstanceTypes", kinds, err)
	zones, err := client.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{AllAvailabilityZones: aws.Bool(true)})
	check("DescribeAvailabilityZones", zones, err)

	modified, err := client.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: id, Size: aws.Int32(16)})
	check("ModifyVolume", modified, err)
	if *modified.VolumeModification.TargetSize != 16 || *modified.VolumeModification.OriginalSize != 8 {
		t.Errorf("ModifyVolume: %+v", modified.VolumeModification)
	}
	modifications, err := client.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{*id}})
	check("DescribeVolumesModifications", modifications, err)
	status, err := client.DescribeVolumeStatus(ctx, &ec2.DescribeVolumeStatusInput{Filters: filters("volume-status.status", "ok")})
	check("DescribeVolumeStatus", status, err)
	attribute, err := client.ModifyVolumeAttribute(ctx, &ec2.ModifyVolumeAttributeInput{
		VolumeId: id, AutoEnableIO: &types.AttributeBooleanValue{Value: aws.Bool(true)},
	})
	check("ModifyVolumeAttribute", attribute, err)

	snapshots(ctx, t, client, *id, check)

	copied, err := client.CopyVolumes(ctx, &ec2.CopyVolumesInput{SourceVolumeId: id, ClientToken: aws.String("token-2")})
	check("CopyVolumes", copied, err)
	made, err := client.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*id}, Tags: tagsOf("k", "v")})
	check("CreateTags", made, err)
	tags, err := client.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: filters("resource-id", *id)})
	check("DescribeTags", tags, err)
	if len(tags.Tags) != 3 {
		t.Errorf("DescribeTags: %d tags, want 3", len(tags.Tags))
	}
	unmade, err := client.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{*id}, Tags: []types.Tag{{Key: aws.String("k")}}})
	check("DeleteTags", unmade, err)
	detached, err := client.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: id})
	check("DetachVolume", detached, err)
	deleted, err := client.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: id})
	check("DeleteVolume", deleted, err)

	for _, action := range world.Actions() {
		if !called[action] {
			t.Errorf("%s was not called", action)
		}
	}
}

// snapshots calls the actions of snapshots.
func snapshots(ctx context.Context, t *testing.T, client *ec2.Client, volumeID string, check func(string, any, error)) {
	t.Helper()
	snapshot, err := client.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{
		VolumeId: &volumeID, Description: aws.String("a & b"),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSnapshot, Tags: tagsOf("CSIVolumeSnapshotName", "s")}},
	})
	check("CreateSnapshot", snapshot, err)
	if snapshot.State == "" || *snapshot.Description != "a & b" {
		t.Errorf("CreateSnapshot: %+v", snapshot)
	}
	id := *snapshot.SnapshotId
	described, err := client.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: filters("snapshot-id", id)})
	check("DescribeSnapshots", described, err)
	if len(described.Snapshots) != 1 || described.Snapshots[0].State != types.SnapshotStateCompleted || *described.Snapshots[0].Progress != "100%" {
		t.Errorf("DescribeSnapshots: %+v", described.Snapshots)
	}
	locked, err := client.LockSnapshot(ctx, &ec2.LockSnapshotInput{SnapshotId: &id, LockMode: types.LockModeGovernance, LockDuration: aws.Int32(1)})
	check("LockSnapshot", locked, err)
	locks, err := client.DescribeLockedSnapshots(ctx, &ec2.DescribeLockedSnapshotsInput{SnapshotIds: []string{id}})
	check("DescribeLockedSnapshots", locks, err)
	unlocked, err := client.UnlockSnapshot(ctx, &ec2.UnlockSnapshotInput{SnapshotId: &id})
	check("UnlockSnapshot", unlocked, err)

	enabled, err := client.EnableFastSnapshotRestores(ctx, &ec2.EnableFastSnapshotRestoresInput{
		AvailabilityZones: []string{emulatedZone}, SourceSnapshotIds: []string{id, "snap-0123456789abcdef0"},
	})
	check("EnableFastSnapshotRestores", enabled, err)
	if len(enabled.Successful) != 1 || len(enabled.Unsuccessful) != 1 {
		t.Errorf("EnableFastSnapshotRestores: %+v", enabled)
	}
	restores, err := client.DescribeFastSnapshotRestores(ctx, &ec2.DescribeFastSnapshotRestoresInput{Filters: filters("snapshot-id", id)})
	check("DescribeFastSnapshotRestores", restores, err)
	disabled, err := client.DisableFastSnapshotRestores(ctx, &ec2.DisableFastSnapshotRestoresInput{
		AvailabilityZones: []string{emulatedZone}, SourceSnapshotIds: []string{id},
	})
	check("DisableFastSnapshotRestores", disabled, err)

	many, err := client.CreateSnapshots(ctx, &ec2.CreateSnapshotsInput{
		InstanceSpecification: &types.InstanceSpecification{InstanceId: aws.String(emulatedInstance), ExcludeBootVolume: aws.Bool(true)},
	})
	check("CreateSnapshots", many, err)
	if len(many.Snapshots) != 1 || many.Snapshots[0].State == "" {
		t.Errorf("CreateSnapshots: %+v", many.Snapshots)
	}
	copied, err := client.CopySnapshot(ctx, &ec2.CopySnapshotInput{SourceRegion: aws.String("us-west-2"), SourceSnapshotId: &id})
	check("CopySnapshot", copied, err)
	deleted, err := client.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &id})
	check("DeleteSnapshot", deleted, err)
}

func tagsOf(pairs ...string) []types.Tag {
	var tags []types.Tag
	for pair := range slices.Chunk(pairs, 2) {
		tags = append(tags, types.Tag{Key: &pair[0], Value: &pair[1]})
	}
	return tags
}

func filters(name string, values ...string) []types.Filter {
	return []types.Filter{{Name: &name, Values: values}}
}

// TestSDK_seesErrorsByTheirCodes has the codes that the backend decides by
// come out of the SDK as they went in.
func TestSDK_seesErrorsByTheirCodes(t *testing.T) {
	for name, c := range map[string]struct {
		knobs ec2emu.Knobs
		fault *ec2emu.Fault
		call  func(context.Context, *ec2.Client) error
		code  string
	}{
		"an unknown volume": {call: deleteVolume("vol-0123456789abcdef0"), code: "InvalidVolume.NotFound"},
		"a malformed one":   {call: deleteVolume("vol-x"), code: "InvalidVolumeID.Malformed"},
		"an expired request": {knobs: ec2emu.Knobs{Auth: ec2emu.Auth{Expired: true}},
			call: deleteVolume("vol-0123456789abcdef0"), code: "RequestExpired"},
		"another region": {knobs: ec2emu.Knobs{Auth: ec2emu.Auth{Region: "eu-west-1"}},
			call: deleteVolume("vol-0123456789abcdef0"), code: "AuthFailure"},
		"an unknown key": {knobs: ec2emu.Knobs{Auth: ec2emu.Auth{AccessKeys: []string{"other"}}},
			call: deleteVolume("vol-0123456789abcdef0"), code: "AuthFailure"},
		"a denied action": {knobs: ec2emu.Knobs{Auth: ec2emu.Auth{Denied: []string{"DeleteVolume"}}},
			call: deleteVolume("vol-0123456789abcdef0"), code: "UnauthorizedOperation"},
		"a fault": {fault: &ec2emu.Fault{Kind: ec2emu.FaultError, Code: "VolumeLimitExceeded", Status: 400},
			call: deleteVolume("vol-0123456789abcdef0"), code: "VolumeLimitExceeded"},
		"no XML": {fault: &ec2emu.Fault{Kind: ec2emu.FaultGarble, Status: 400},
			call: deleteVolume("vol-0123456789abcdef0"), code: "UnknownError"},
	} {
		t.Run(name, func(t *testing.T) {
			client, _, server := emulated(t, ec2emu.Options{World: world.Config{Knobs: world.Instant()}, Knobs: c.knobs})
			if c.fault != nil {
				if _, err := server.AddFault(*c.fault); err != nil {
					t.Fatal(err)
				}
			}
			err := c.call(t.Context(), client)
			var refused smithy.APIError
			if !errors.As(err, &refused) || refused.ErrorCode() != c.code {
				t.Errorf("error %v, want the code %s", err, c.code)
			}
		})
	}
}

func deleteVolume(id string) func(context.Context, *ec2.Client) error {
	return func(ctx context.Context, client *ec2.Client) error {
		_, err := client.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
		return err
	}
}

// TestSDK_repeatsAfterADroppedReply shows the danger of the SDK's own retries:
// an action without a client token is executed twice.
func TestSDK_repeatsAfterADroppedReply(t *testing.T) {
	client, _, server := emulated(t, ec2emu.Options{World: world.Config{Knobs: world.Instant()}})
	ctx := t.Context()
	volume, err := client.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String(emulatedZone), Size: aws.Int32(1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.AddFault(ec2emu.Fault{Kind: ec2emu.FaultDropReply, Action: "CreateSnapshot", Count: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: volume.VolumeId}); err != nil {
		t.Fatal(err)
	}
	all, err := client.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Snapshots) != 2 {
		t.Errorf("%d snapshots, want 2: the SDK sends CreateSnapshot again", len(all.Snapshots))
	}
	calls := server.Journal(0)
	first, second := calls[1], calls[2]
	if first.Invocation == "" || first.Invocation != second.Invocation || first.Attempt != 1 || second.Attempt != 2 {
		t.Errorf("the journal does not show two attempts of one call: %+v, %+v", first, second)
	}
	if first.Code != ec2emu.CodeDropped || !first.Executed || second.Code != ec2emu.CodeOK {
		t.Errorf("codes %s (executed: %v) and %s, want dropped (true) and OK", first.Code, first.Executed, second.Code)
	}
}
