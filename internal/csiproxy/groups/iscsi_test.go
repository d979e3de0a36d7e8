package groups

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	. "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/iscsi/v1alpha2"
)

// The group iscsi in both versions.
func TestISCSIVersions_areThoseOfTheWire(t *testing.T) {
	portal := Sub(1, Text(1, "10.0.0.1"), Number(2, 3261))
	login := Message(portal, Text(2, "iqn.a"))
	alpha1 := []Exchange{
		Sent("AddTargetPortal", portal).Asks("AddPortal {10.0.0.1 3261}"),
		Sent("AddTargetPortal", Sub(1, Text(1, "10.0.0.1"))).Asks("AddPortal {10.0.0.1 0}"),
		Sent("DiscoverTargetPortal", portal).Asks("Discover {10.0.0.1 3261}").Answers(Message(Text(1, "iqn.a"), Text(1, "iqn.b"))),
		Sent("RemoveTargetPortal", portal).Asks("RemovePortal {10.0.0.1 3261}"),
		Sent("ListTargetPortals").Asks("Portals").
			Answers(Message(portal, Sub(1, Text(1, "10.0.0.2"), Number(2, 3260)))),
		Sent("ConnectTarget", login).Asks("Connect {10.0.0.1 3261} iqn.a auth 0 as  with "),
		Sent("ConnectTarget", login, Number(3, 1), Text(4, "me"), Text(5, "hush")).
			Asks("Connect {10.0.0.1 3261} iqn.a auth 1 as me with hush"),
		Sent("ConnectTarget", login, Number(3, 2), Text(4, "me"), Text(5, "hush")).
			Asks("Connect {10.0.0.1 3261} iqn.a auth 2 as me with hush"),
		Sent("DisconnectTarget", login).Asks("Disconnect {10.0.0.1 3261} iqn.a"),
		Sent("GetTargetDisks", login).Asks("Disks {10.0.0.1 3261} iqn.a").Answers(Message(Text(1, "7"), Text(1, "4294967295"))),
	}
	Check(t, iscsiVersions(), map[string][]Exchange{
		"v1alpha1": alpha1,
		"v1alpha2": slices.Concat(alpha1, []Exchange{
			Sent("SetMutualChapSecret", Text(1, "0123456789ab")).Asks("SetMutualSecret 0123456789ab"),
		}),
	})
}

// portalCalls are those whose requests have a target_portal.
func portalCalls() []string {
	return []string{
		"AddTargetPortal", "DiscoverTargetPortal", "RemoveTargetPortal",
		"ConnectTarget", "DisconnectTarget", "GetTargetDisks",
	}
}

// A request without its target_portal is rejected; it ended upstream's process.
// A port of more than 16 bits is rejected, not truncated.
func TestTargetPortal_isRefusedWhenItIsMissingOrItsPortIsNone(t *testing.T) {
	for _, definition := range iscsiVersions() {
		machine := Answering()
		server := Serve(t, definition, machine.Host())
		for _, method := range portalCalls() {
			for name, request := range map[string][]byte{
				"no portal":            nil,
				"no portal but a name": Text(2, "iqn.a"),
				"port 65536":           Sub(1, Text(1, "10.0.0.1"), Number(2, 65536)),
				"port 3260 + 65536":    Sub(1, Text(1, "10.0.0.1"), Number(2, 3260+65536)),
				"port 4294967295":      Sub(1, Text(1, "10.0.0.1"), Number(2, math.MaxUint32)),
			} {
				if _, err := server.Call(t, method, request); !errors.Is(err, backend.ErrInvalid) {
					t.Errorf("%s %s, %s: %v, want ErrInvalid", Name(definition), method, name, err)
				}
			}
		}
		if calls := machine.Calls(); calls != nil {
			t.Errorf("%s: the host was asked %q", Name(definition), calls)
		}
	}
}

func TestAuthType_isRefusedWhenItIsNone(t *testing.T) {
	for message, want := range map[pb.AuthenticationType]api.AuthType{0: api.NoAuth, 1: api.OneWayCHAP, 2: api.MutualCHAP} {
		if got, err := authType(message); got != want || err != nil {
			t.Errorf("auth_type %d is %d, %v", message, got, err)
		}
	}
	for _, message := range []pb.AuthenticationType{3, -1, math.MaxInt32} {
		if _, err := authType(message); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("auth_type %d: %v, want ErrInvalid", message, err)
		}
	}
}

func FuzzISCSILogin(f *testing.F) {
	f.Add(true, "10.0.0.1", uint32(3260), "iqn.a", int32(1), "me", "hush")
	f.Add(false, "", uint32(65536), "", int32(3), "", "")
	f.Fuzz(func(t *testing.T, has bool, address string, port uint32, iqn string, auth int32, username, secret string) {
		req := &pb.ConnectTargetRequest{Iqn: iqn, AuthType: pb.AuthenticationType(auth), ChapUsername: username, ChapSecret: secret}
		if has {
			req.TargetPortal = &pb.TargetPortal{TargetAddress: address, TargetPort: port}
		}
		got, err := login(req)
		if good := has && port <= 65535 && auth >= 0 && auth <= 2; good != (err == nil) {
			t.Fatalf("%v: %v", req, err)
		}
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		want := api.ISCSILogin{
			Portal: api.Portal{Address: address, Port: port}, IQN: iqn,
			Auth: api.AuthType(auth), Username: username, Secret: api.Secret(secret),
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
