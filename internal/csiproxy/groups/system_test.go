package groups

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	. "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/system/v1alpha1"
)

func TestSystemVersions_areThoseOfTheWire(t *testing.T) {
	Check(t, systemVersions(), map[string][]Exchange{"v1alpha1": {
		Sent("GetBIOSSerialNumber").Asks("BIOSSerialNumber").Answers(Text(1, "ec2-1")),
		Sent("StartService", Text(1, "MSiSCSI")).Asks("StartService MSiSCSI"),
		Sent("StopService", Text(1, "MSiSCSI"), Yes(2)).Asks("StopService MSiSCSI true"),
		Sent("StopService", Text(1, "MSiSCSI")).Asks("StopService MSiSCSI false"),
		Sent("GetService", Text(1, "MSiSCSI")).Asks("Service MSiSCSI").
			Answers(Message(Text(1, "Initiator"), Number(2, 3), Number(3, 4))),
	}})
}

func TestSystemMessage_hasNumbersThatTheAPIHas(t *testing.T) {
	for number := range uint32(5) {
		response, err := message(api.Service{StartType: number})
		if err != nil || response.GetStartType() != pb.StartType(number) {
			t.Errorf("start type %d became %v, %v", number, response, err)
		}
	}
	if response, err := message(api.Service{DisplayName: "x", StartType: 5}); err == nil {
		t.Errorf("start type 5 became %v", response)
	}
	for number := range uint32(8) {
		response, err := message(api.Service{Status: number})
		if err != nil || response.GetStatus() != pb.ServiceStatus(number) {
			t.Errorf("status %d became %v, %v", number, response, err)
		}
	}
	if response, err := message(api.Service{Status: 8}); err != nil || response.GetStatus() != pb.ServiceStatus_UNKNOWN {
		t.Errorf("status 8 became %v, %v", response, err)
	}
}

// The numbers are those of winsvc.h, so that they pass as they are.
func TestSystemNames_haveTheNumbersOfTheServiceControlManager(t *testing.T) {
	wantStatus := map[string]int32{
		"UNKNOWN": 0, "STOPPED": 1, "START_PENDING": 2, "STOP_PENDING": 3, "RUNNING": 4,
		"CONTINUE_PENDING": 5, "PAUSE_PENDING": 6, "PAUSED": 7,
	}
	if diff := cmp.Diff(wantStatus, pb.ServiceStatus_value); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	wantStart := map[string]int32{"BOOT": 0, "SYSTEM": 1, "AUTOMATIC": 2, "MANUAL": 3, "DISABLED": 4}
	if diff := cmp.Diff(wantStart, pb.StartType_value); diff != "" {
		t.Errorf("start type (-want +got):\n%s", diff)
	}
}

func FuzzSystemMessage(f *testing.F) {
	f.Add("Initiator", uint32(3), uint32(4))
	f.Add("\xff", uint32(5), uint32(1<<31))
	f.Fuzz(func(t *testing.T, name string, startType, status uint32) {
		response, err := message(api.Service{DisplayName: name, StartType: startType, Status: status})
		if err != nil {
			return
		}
		if _, err := proto.Marshal(response); err != nil {
			t.Error(err)
		}
		if _, known := pb.StartType_name[int32(response.GetStartType())]; !known {
			t.Errorf("%v", response)
		}
		if _, known := pb.ServiceStatus_name[int32(response.GetStatus())]; !known {
			t.Errorf("%v", response)
		}
	})
}
