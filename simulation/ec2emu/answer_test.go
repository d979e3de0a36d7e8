package ec2emu

import (
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func parseForm(t *testing.T, body string) url.Values {
	t.Helper()
	form, err := url.ParseQuery(body)
	if err != nil {
		t.Fatal(err)
	}
	return form
}

func newLike(v any) any { return reflect.New(reflect.TypeOf(v).Elem()).Interface() }

const head = ` xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r-1</requestId>`

// TestEncodeAnswer_writesWhatTheSDKsRead has the shapes in which the actions
// differ from one another.
func TestEncodeAnswer_writesWhatTheSDKsRead(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		action string
		answer any
		want   string
	}{
		"a volume, absent values left out": {"DescribeVolumes",
			&world.DescribeVolumesResponse{Volumes: []world.Volume{{
				VolumeID: "vol-0123456789abcdef0", Size: 8, VolumeType: "gp3", State: "in-use",
				AvailabilityZone: "us-west-2a", AvailabilityZoneID: "usw2-az1", CreateTime: at, IOPS: pointer(int32(3000)),
				Attachments: []world.VolumeAttachment{{
					VolumeID: "vol-0123456789abcdef0", InstanceID: "i-0123456789abcdef0", Device: "/dev/xvdaa",
					State: "attaching", AttachTime: at.Add(55 * time.Second),
				}},
				Tags: []world.TagItem{{Key: "CSIVolumeName", Value: "pvc-1"}, {Key: "empty"}},
			}}},
			`<volumeSet><item><volumeId>vol-0123456789abcdef0</volumeId><size>8</size><volumeType>gp3</volumeType>` +
				`<status>in-use</status><availabilityZone>us-west-2a</availabilityZone><availabilityZoneId>usw2-az1</availabilityZoneId>` +
				`<createTime>2026-01-02T03:04:05.000Z</createTime><encrypted>false</encrypted><iops>3000</iops>` +
				`<multiAttachEnabled>false</multiAttachEnabled>` +
				`<attachmentSet><item><volumeId>vol-0123456789abcdef0</volumeId><instanceId>i-0123456789abcdef0</instanceId>` +
				`<device>/dev/xvdaa</device><status>attaching</status><attachTime>2026-01-02T03:05:00.000Z</attachTime>` +
				`<deleteOnTermination>false</deleteOnTermination></item></attachmentSet>` +
				`<tagSet><item><key>CSIVolumeName</key><value>pvc-1</value></item><item><key>empty</key><value></value></item></tagSet>` +
				`</item></volumeSet>`},
		"an empty set": {"DescribeVolumesModifications", &world.DescribeVolumesModificationsResponse{},
			`<volumeModificationSet></volumeModificationSet>`},
		"a structure at the root": {"AttachVolume",
			&world.AttachVolumeResponse{VolumeAttachment: world.VolumeAttachment{VolumeID: "vol-1", State: "attaching"}},
			`<volumeId>vol-1</volumeId><status>attaching</status><deleteOnTermination>false</deleteOnTermination>`},
		"an action without output": {"DeleteVolume", &world.DeleteVolumeResponse{Done: world.Done{Return: true}}, `<return>true</return>`},
		"nothing at all":           {"DeleteVolume", nil, `<return>true</return>`},
		"two levels of items": {"DescribeInstances",
			&world.DescribeInstancesResponse{Reservations: []world.Reservation{{ReservationID: "r-1", Instances: []world.Instance{{
				InstanceID: "i-1", State: world.InstanceState{Code: 0, Name: "pending"},
			}}}}, NextToken: "more"},
			`<reservationSet><item><reservationId>r-1</reservationId><instancesSet><item><instanceId>i-1</instanceId>` +
				`<instanceState><code>0</code><name>pending</name></instanceState><placement></placement>` +
				`<blockDeviceMapping></blockDeviceMapping><networkInterfaceSet></networkInterfaceSet><tagSet></tagSet>` +
				`</item></instancesSet></item></reservationSet><nextToken>more</nextToken>`},
		"what XML has its own meaning for": {"CreateTags", &world.DescribeTagsResponse{Tags: []world.TagDescription{{Key: "<a&b>", Value: "\"\x00é"}}},
			"<tagSet><item><key>&lt;a&amp;b&gt;</key><value>&#34;\uFFFDé</value></item></tagSet>"},
	} {
		t.Run(name, func(t *testing.T) {
			want := "<" + c.action + "Response" + head + c.want + "</" + c.action + "Response>"
			if got := string(encodeAnswer(c.action, "r-1", c.answer)); got != want {
				t.Errorf("wrote\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestEncodeError_hasEC2sShape(t *testing.T) {
	want := `<Response><Errors><Error><Code>InvalidVolume.NotFound</Code><Message>The volume &#39;vol-1&#39; does not exist.</Message></Error></Errors><RequestID>r-1</RequestID></Response>`
	if got := string(encodeError("r-1", "InvalidVolume.NotFound", "The volume 'vol-1' does not exist.")); got != want {
		t.Errorf("wrote\n%s\nwant\n%s", got, want)
	}
}
