package groups

import (
	"fmt"
	"math"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/iscsi/v1alpha2"
)

// portal converts a portal. It rejects a missing one, and a port of more than 16 bits.
func portal(message *pb.TargetPortal) (api.Portal, error) {
	if message == nil {
		return api.Portal{}, fmt.Errorf("target_portal: %w: it is missing", backend.ErrInvalid)
	}
	if port := message.GetTargetPort(); port > math.MaxUint16 {
		return api.Portal{}, fmt.Errorf("target_port %d: %w: it is at most %d", port, backend.ErrInvalid, math.MaxUint16)
	}
	return api.Portal{Address: message.GetTargetAddress(), Port: message.GetTargetPort()}, nil
}

func login(req *pb.ConnectTargetRequest) (api.ISCSILogin, error) {
	at, err := portal(req.GetTargetPortal())
	if err != nil {
		return api.ISCSILogin{}, err
	}
	auth, err := authType(req.GetAuthType())
	if err != nil {
		return api.ISCSILogin{}, err
	}
	return api.ISCSILogin{
		Portal: at, IQN: req.GetIqn(),
		Auth: auth, Username: req.GetChapUsername(), Secret: api.Secret(req.GetChapSecret()),
	}, nil
}

func authType(message pb.AuthenticationType) (api.AuthType, error) {
	switch message {
	case pb.AuthenticationType_NONE:
		return api.NoAuth, nil
	case pb.AuthenticationType_ONE_WAY_CHAP:
		return api.OneWayCHAP, nil
	case pb.AuthenticationType_MUTUAL_CHAP:
		return api.MutualCHAP, nil
	}
	return 0, fmt.Errorf("auth_type %d: %w: it is 0 (none), 1 (one-way CHAP) or 2 (mutual CHAP)",
		message, backend.ErrInvalid)
}

func messages(portals []api.Portal) []*pb.TargetPortal {
	var list []*pb.TargetPortal
	for _, portal := range portals {
		list = append(list, &pb.TargetPortal{TargetAddress: validText(portal.Address), TargetPort: portal.Port})
	}
	return list
}

func names(iqns []string) []string {
	var list []string
	for _, iqn := range iqns {
		list = append(list, validText(iqn))
	}
	return list
}

func texts(numbers []uint32) []string {
	var list []string
	for _, number := range numbers {
		list = append(list, diskText(number))
	}
	return list
}
