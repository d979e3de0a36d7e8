package ec2emu

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func pointer[T any](v T) *T { return &v }

// Bodies of the SDKs and the AWS CLI, with the requests that they mean.
func TestDecodeQuery_readsWhatClientsSend(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want any
	}{
		"structures in lists in lists": {
			"Action=CreateVolume&AvailabilityZone=us-west-2a&ClientToken=abc&Encrypted=true&Iops=4000&Size=8" +
				"&TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=CSIVolumeName&TagSpecification.1.Tag.1.Value=pvc-1" +
				"&TagSpecification.1.Tag.2.Key=k&TagSpecification.1.Tag.2.Value=&Version=2016-11-15&VolumeType=gp3",
			&world.CreateVolumeRequest{
				AvailabilityZone: "us-west-2a", ClientToken: "abc", Encrypted: pointer(true), IOPS: pointer(int32(4000)),
				Size: pointer(int32(8)), VolumeType: "gp3",
				TagSpecifications: []world.TagSpecification{{ResourceType: "volume", Tags: []world.Tag{
					{Key: "CSIVolumeName", Value: "pvc-1"}, {Key: "k"},
				}}},
			},
		},
		"filters and pages": {
			"Action=DescribeVolumes&Filter.1.Name=volume-id&Filter.1.Value.1=vol-1&Filter.1.Value.2=vol-2&Filter.2.Name=tag%3Aa%2Eb" +
				"&Filter.2.Value.1=x%20y&MaxResults=500&NextToken=t&Version=2016-11-15",
			&world.DescribeVolumesRequest{
				Filters: []world.Filter{{Name: "volume-id", Values: []string{"vol-1", "vol-2"}}, {Name: "tag:a.b", Values: []string{"x y"}}},
				Page:    world.Page{MaxResults: pointer(int32(500)), NextToken: "t"},
			},
		},
		"lists in the order of their numbers, not of their spelling": {
			"VolumeId.10=j&VolumeId.2=b&VolumeId.1=a&VolumeId.9=i",
			&world.DescribeVolumesRequest{VolumeIDs: []string{"a", "b", "i", "j"}},
		},
		"an absent value and an empty one": {
			"ResourceId.1=vol-1&Tag.1.Key=a&Tag.2.Key=b&Tag.2.Value=",
			&world.DeleteTagsRequest{ResourceIDs: []string{"vol-1"}, Tags: []world.TagToDelete{{Key: "a"}, {Key: "b", Value: pointer("")}}},
		},
		"times": {
			"SnapshotId=snap-1&LockMode=governance&ExpirationDate=2026-01-02T03:04:05.678Z",
			&world.LockSnapshotRequest{
				SnapshotID: "snap-1", LockMode: "governance",
				ExpirationDate: pointer(time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)),
			},
		},
		"nested structures": {
			"VolumeId=vol-1&AutoEnableIO.Value=true",
			&world.ModifyVolumeAttributeRequest{VolumeID: "vol-1", AutoEnableIO: &world.BoolValue{Value: pointer(true)}},
		},
		"zero, which is not absent": {
			"VolumeId=vol-1&InstanceId=i-1&Device=/dev/xvdaa&EbsCardIndex=0",
			&world.AttachVolumeRequest{VolumeID: "vol-1", InstanceID: "i-1", Device: "/dev/xvdaa", EBSCardIndex: pointer(int32(0))},
		},
		"a known no-op where the action has no such parameter, and a presigned signature": {
			"VolumeId=vol-1&IncludeManagedResources=true&X-Amz-Signature=00",
			&world.DeleteVolumeRequest{VolumeID: "vol-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := newLike(c.want)
			if err := decodeQuery(parseForm(t, c.body), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeQuery_refusesWhatItCannotRead(t *testing.T) {
	for name, c := range map[string]struct{ body, code, message string }{
		"unknown":                {"VolumeIds.1=vol-1", "UnknownParameter", "The parameter VolumeIds.1 is not recognized"},
		"unknown below":          {"Filter.1.Title=a", "UnknownParameter", "The parameter Filter.1.Title is not recognized"},
		"other case":             {"volumeid.1=vol-1", "UnknownParameter", "The parameter volumeid.1 is not recognized"},
		"list without number":    {"VolumeId=vol-1", "UnknownParameter", "The parameter VolumeId is not recognized"},
		"list from zero":         {"VolumeId.0=vol-1", "UnknownParameter", "The parameter VolumeId.0 is not recognized"},
		"another spelling":       {"VolumeId.01=vol-1", "UnknownParameter", "The parameter VolumeId.01 is not recognized"},
		"member form":            {"VolumeId.member.1=vol-1", "UnknownParameter", "The parameter VolumeId.member.1 is not recognized"},
		"value with structure":   {"NextToken=a&NextToken.b=c", "InvalidParameterCombination", "The parameter NextToken is a value, not a structure"},
		"structure for a value":  {"NextToken.b=c", "UnknownParameter", "The parameter NextToken.b is not recognized"},
		"number":                 {"MaxResults=ten", "InvalidParameterValue", "Value (ten) for parameter MaxResults is invalid. Expected an integer"},
		"empty number":           {"MaxResults=", "InvalidParameterValue", "Value () for parameter MaxResults is invalid. Expected an integer"},
		"number beyond 32 bits":  {"MaxResults=4294967296", "InvalidParameterValue", "Value (4294967296) for parameter MaxResults is invalid. Expected an integer"},
		"boolean":                {"DryRun=yes", "InvalidParameterValue", "Value (yes) for parameter DryRun is invalid. Expected true or false"},
		"twice":                  {"NextToken=a&NextToken=b", "InvalidParameterCombination", "The parameter NextToken is given more than once"},
		"a value for everything": {"=x", "UnknownParameter", "The parameter  is not recognized"},
	} {
		t.Run(name, func(t *testing.T) {
			err := decodeQuery(parseForm(t, c.body), &world.DescribeVolumesRequest{})
			var refused *failure
			if !errors.As(err, &refused) {
				t.Fatalf("error %v, want one with EC2's code", err)
			}
			if refused.Code != c.code || refused.Message != c.message {
				t.Errorf("got %s: %s; want %s: %s", refused.Code, refused.Message, c.code, c.message)
			}
		})
	}
}

func FuzzDecodeQuery(f *testing.F) {
	f.Add("Filter.1.Name=a&Filter.1.Value.1=b&VolumeId.3=c&MaxResults=5")
	f.Add("Filter.1=a&.=b&Filter..Name=c")
	f.Fuzz(func(t *testing.T, body string) {
		form, err := url.ParseQuery(body)
		if err != nil {
			return
		}
		err = decodeQuery(form, &world.DescribeVolumesRequest{})
		if refused := (*failure)(nil); err != nil && !errors.As(err, &refused) {
			t.Errorf("%q: error without a code: %v", body, err)
		}
	})
}
