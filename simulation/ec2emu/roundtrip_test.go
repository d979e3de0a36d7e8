package ec2emu

import (
	"encoding/xml"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// TestEveryAction_answersRawHTTP sends the forms of each action as they are on
// the wire. $volume and the like are IDs that earlier answers gave.
func TestEveryAction_answersRawHTTP(t *testing.T) {
	s := newServer(t, Options{})
	if _, err := s.World().RunInstance(world.InstanceSpec{ID: testInstance}); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{"$instance": testInstance}
	covered := map[string]bool{}
	for _, step := range []struct {
		form string
		want string // part of the answer, or a pattern whose group is the ID for keep
		keep string
	}{
		{"Action=CreateVolume&AvailabilityZone=us-west-2a&Size=8&VolumeType=gp3&TagSpecification.1.ResourceType=volume&TagSpecification.1.Tag.1.Key=k&TagSpecification.1.Tag.1.Value=a%26b",
			`<volumeId>(vol-[0-9a-f]{17})</volumeId><size>8</size>.*<tagSet><item><key>k</key><value>a&amp;b</value></item></tagSet>`, "$volume"},
		{"Action=DescribeVolumes&Filter.1.Name=tag:k&Filter.1.Value.1=a%26b", `<volumeSet><item><volumeId>$volume</volumeId>.*<status>available</status>`, ""},
		{"Action=AttachVolume&Device=/dev/xvdaa&InstanceId=$instance&VolumeId=$volume",
			`<volumeId>$volume</volumeId><instanceId>$instance</instanceId><device>/dev/xvdaa</device><status>att`, ""},
		{"Action=DescribeInstances&InstanceId.1=$instance",
			`<reservationSet><item>.*<instancesSet><item><instanceId>$instance</instanceId>.*<deviceName>/dev/xvdaa</deviceName><ebs><volumeId>$volume</volumeId><status>attached</status>`, ""},
		{"Action=ModifyVolume&Size=16&VolumeId=$volume", `<volumeModification><volumeId>$volume</volumeId>.*<targetSize>16</targetSize>`, ""},
		{"Action=DescribeVolumesModifications&Filter.1.Name=volume-id&Filter.1.Value.1=$volume", `<volumeModificationSet><item><volumeId>$volume</volumeId>`, ""},
		{"Action=DescribeVolumeStatus&VolumeId.1=$volume", `<volumeStatusSet><item><volumeId>$volume</volumeId>.*<volumeStatus><status>ok</status><details><item><name>`, ""},
		{"Action=ModifyVolumeAttribute&AutoEnableIO.Value=true&VolumeId=$volume", `<return>true</return>`, ""},
		{"Action=CreateSnapshot&Description=d&VolumeId=$volume", `<snapshotId>(snap-[0-9a-f]{17})</snapshotId><volumeId>$volume</volumeId><status>`, "$snapshot"},
		{"Action=DescribeSnapshots&Owner.1=self&Filter.1.Name=snapshot-id&Filter.1.Value.1=$snapshot",
			`<snapshotSet><item><snapshotId>$snapshot</snapshotId>.*<status>completed</status>.*<progress>100%</progress>`, ""},
		{"Action=CreateSnapshots&InstanceSpecification.InstanceId=$instance&InstanceSpecification.ExcludeBootVolume=true",
			`<snapshotSet><item><snapshotId>snap-[0-9a-f]{17}</snapshotId><volumeId>$volume</volumeId><state>`, ""},
		{"Action=CopySnapshot&SourceRegion=us-west-2&SourceSnapshotId=$snapshot", `<snapshotId>(snap-[0-9a-f]{17})</snapshotId>`, "$copy"},
		{"Action=LockSnapshot&SnapshotId=$snapshot&LockMode=governance&LockDuration=1", `<snapshotId>$snapshot</snapshotId><lockState>governance</lockState>`, ""},
		{"Action=DescribeLockedSnapshots&SnapshotId.1=$snapshot", `<snapshotSet><item>.*<snapshotId>$snapshot</snapshotId>`, ""},
		{"Action=UnlockSnapshot&SnapshotId=$snapshot", `<snapshotId>$snapshot</snapshotId>`, ""},
		{"Action=EnableFastSnapshotRestores&AvailabilityZone.1=us-west-2a&SourceSnapshotId.1=$snapshot", `<successful><item><snapshotId>$snapshot</snapshotId>.*</successful><unsuccessful></unsuccessful>`, ""},
		{"Action=DescribeFastSnapshotRestores&Filter.1.Name=snapshot-id&Filter.1.Value.1=$snapshot", `<fastSnapshotRestoreSet><item><snapshotId>$snapshot</snapshotId>`, ""},
		{"Action=DisableFastSnapshotRestores&AvailabilityZone.1=us-west-2a&SourceSnapshotId.1=$snapshot", `<successful><item><snapshotId>$snapshot</snapshotId>`, ""},
		{"Action=CopyVolumes&SourceVolumeId=$volume&ClientToken=t", `<volumeSet><item><volumeId>vol-[0-9a-f]{17}</volumeId>.*<sourceVolumeId>$volume</sourceVolumeId>`, ""},
		{"Action=CreateTags&ResourceId.1=$volume&ResourceId.2=$snapshot&Tag.1.Key=x&Tag.1.Value=", `<return>true</return>`, ""},
		{"Action=DescribeTags&Filter.1.Name=key&Filter.1.Value.1=x", `<tagSet><item><resourceId>.*<key>x</key><value></value></item></tagSet>`, ""},
		{"Action=DeleteTags&ResourceId.1=$volume&Tag.1.Key=x&Tag.1.Value=", `<return>true</return>`, ""},
		{"Action=DescribeAvailabilityZones&ZoneName.1=us-west-2b", `<availabilityZoneInfo><item><zoneName>us-west-2b</zoneName><zoneId>usw2-az2</zoneId>`, ""},
		{"Action=DescribeInstanceTypes&InstanceType.1=m5.large", `<instanceTypeSet><item><instanceType>m5.large</instanceType>.*<attachmentLimitType>shared</attachmentLimitType>`, ""},
		{"Action=DetachVolume&InstanceId=$instance&VolumeId=$volume", `<volumeId>$volume</volumeId>.*<status>detaching</status>`, ""},
		{"Action=DeleteSnapshot&SnapshotId=$copy", `<return>true</return>`, ""},
		{"Action=DeleteVolume&VolumeId=$volume", `<return>true</return>`, ""},
	} {
		replace := func(text string) string {
			for name, id := range ids {
				text = strings.ReplaceAll(text, name, id)
			}
			return text
		}
		action, _, _ := strings.Cut(strings.TrimPrefix(step.form, "Action="), "&")
		covered[action] = true
		answer := mustPost(t, s, replace(step.form)+"&Version=2016-11-15")
		root := struct{ XMLName xml.Name }{}
		if err := xml.Unmarshal([]byte(answer.body), &root); err != nil || answer.status != http.StatusOK || root.XMLName.Local != action+"Response" {
			t.Fatalf("%s: %d %s (%v)", action, answer.status, answer.body, err)
		}
		found := regexp.MustCompile(replace(step.want)).FindStringSubmatch(answer.body)
		if found == nil {
			t.Fatalf("%s: %s\nwant %s in it", action, answer.body, replace(step.want))
		}
		if step.keep != "" {
			ids[step.keep] = found[1]
		}
	}
	for action := range actions() {
		if !covered[action] {
			t.Errorf("%s was not called", action)
		}
	}
}

func TestActions_areThoseOfTheWorld(t *testing.T) {
	table := actions()
	for _, name := range world.Actions() {
		if _, ok := table[name]; !ok {
			t.Errorf("the endpoint does not answer %s", name)
		}
		delete(table, name)
	}
	for name := range table {
		t.Errorf("the world has no %s", name)
	}
}
