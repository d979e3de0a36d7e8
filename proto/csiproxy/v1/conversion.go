package v1

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// LocationFromAPI returns nil for a disk without an address, or with one that is
// not in decimal digits.
func LocationFromAPI(location *api.DiskLocation) *DiskLocation {
	if location == nil {
		return nil
	}
	var numbers [4]uint32
	for i, text := range []string{location.Adapter, location.Bus, location.Target, location.LUN} {
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil
		}
		numbers[i] = uint32(number)
	}
	return &DiskLocation{Adapter: numbers[0], Bus: numbers[1], Target: numbers[2], Lun: numbers[3]}
}

// LocationToAPI is the reverse of LocationFromAPI.
func LocationToAPI(location *DiskLocation) *api.DiskLocation {
	if location == nil {
		return nil
	}
	text := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	return &api.DiskLocation{Adapter: text(location.GetAdapter()), Bus: text(location.GetBus()),
		Target: text(location.GetTarget()), LUN: text(location.GetLun())}
}

// DiskLocationsFromAPI leaves out disks without an address.
func DiskLocationsFromAPI(disks []api.Disk) map[uint32]*DiskLocation {
	locations := map[uint32]*DiskLocation{}
	for _, disk := range disks {
		if location := LocationFromAPI(disk.Location); location != nil {
			locations[disk.Number] = location
		}
	}
	return locations
}

func idsFromAPI(disk api.Disk) *DiskIDs {
	ids := &DiskIDs{Page83: disk.Page83, SerialNumber: disk.SerialNumber}
	for _, id := range disk.Identifiers {
		ids.Identifiers = append(ids.Identifiers, &DiskIdentifier{
			CodeSet: id.CodeSet, Type: id.Type, Association: id.Association, Value: id.Value,
		})
	}
	return ids
}

// DiskIDsFromAPI leaves out disks that could not be read.
func DiskIDsFromAPI(disks []api.Disk) map[uint32]*DiskIDs {
	ids := map[uint32]*DiskIDs{}
	for _, disk := range disks {
		if disk.Problem == nil || disk.Page83 != "" || disk.SerialNumber != "" {
			ids[disk.Number] = idsFromAPI(disk)
		}
	}
	return ids
}

// IdentityFromAPI returns nil for the identity of any disk.
func IdentityFromAPI(expected api.Identity) *DiskIDs {
	if expected == (api.Identity{}) {
		return nil
	}
	return &DiskIDs{Page83: expected.Page83, SerialNumber: expected.SerialNumber}
}

// IdentityToAPI is the reverse of IdentityFromAPI.
func IdentityToAPI(ids *DiskIDs) api.Identity {
	return api.Identity{Page83: ids.GetPage83(), SerialNumber: ids.GetSerialNumber()}
}

// PortalToAPI converts a missing portal to an empty one, which the host rejects.
func PortalToAPI(portal *ISCSIPortal) api.Portal {
	return api.Portal{Address: portal.GetAddress(), Port: portal.GetPort()}
}

// AuthTypeToAPI rejects a number that this version lacks.
func AuthTypeToAPI(auth ISCSIAuthType) (api.AuthType, error) {
	switch auth {
	case ISCSIAuthType_ISCSI_AUTH_TYPE_NONE:
		return api.NoAuth, nil
	case ISCSIAuthType_ISCSI_AUTH_TYPE_ONE_WAY_CHAP:
		return api.OneWayCHAP, nil
	case ISCSIAuthType_ISCSI_AUTH_TYPE_MUTUAL_CHAP:
		return api.MutualCHAP, nil
	}
	return 0, fmt.Errorf("%w: this version lacks auth_type %d", backend.ErrInvalid, auth)
}

// loginRequest is a request with a login: MountISCSILun's and ConnectISCSITarget's.
type loginRequest interface {
	GetPortal() *ISCSIPortal
	GetIqn() string
	GetAuthType() ISCSIAuthType
	GetChapUsername() string
	GetChapSecret() string
}

// LoginToAPI returns the login of a request.
func LoginToAPI(request loginRequest) (api.ISCSILogin, error) {
	auth, err := AuthTypeToAPI(request.GetAuthType())
	return api.ISCSILogin{
		Portal: PortalToAPI(request.GetPortal()), IQN: request.GetIqn(), Auth: auth,
		Username: request.GetChapUsername(), Secret: api.Secret(request.GetChapSecret()),
	}, err
}

// SMBMountToAPI returns the mount of a request.
func SMBMountToAPI(request *MountSMBShareRequest) api.SMBMount {
	return api.SMBMount{
		Remote: request.GetRemotePath(), Local: request.GetStagingPath(),
		Username: request.GetUsername(), Password: api.Secret(request.GetPassword()),
	}
}

// AuthTypeFromAPI is the reverse of AuthTypeToAPI. It returns no authentication for a
// number that package api lacks.
func AuthTypeFromAPI(auth api.AuthType) ISCSIAuthType {
	switch auth {
	case api.OneWayCHAP:
		return ISCSIAuthType_ISCSI_AUTH_TYPE_ONE_WAY_CHAP
	case api.MutualCHAP:
		return ISCSIAuthType_ISCSI_AUTH_TYPE_MUTUAL_CHAP
	}
	return ISCSIAuthType_ISCSI_AUTH_TYPE_NONE
}

// PortalFromAPI is the reverse of PortalToAPI.
func PortalFromAPI(portal api.Portal) *ISCSIPortal {
	return &ISCSIPortal{Address: portal.Address, Port: portal.Port}
}

// DiskFromAPI converts a Problem to its text.
func DiskFromAPI(disk api.Disk) *Disk {
	converted := &Disk{
		Number: disk.Number, Location: LocationFromAPI(disk.Location),
		Ids:       idsFromAPI(disk),
		SizeBytes: disk.Size, Online: disk.Online, ReadOnly: disk.ReadOnly,
	}
	if disk.Problem != nil {
		converted.Problem = cmp.Or(disk.Problem.Error(), "unknown")
	}
	return converted
}

// DiskToAPI is the reverse of DiskFromAPI.
func DiskToAPI(disk *Disk) api.Disk {
	converted := api.Disk{
		Number: disk.GetNumber(), Location: LocationToAPI(disk.GetLocation()),
		Page83: disk.GetIds().GetPage83(), SerialNumber: disk.GetIds().GetSerialNumber(),
		Size: disk.GetSizeBytes(), Online: disk.GetOnline(), ReadOnly: disk.GetReadOnly(),
	}
	for _, id := range disk.GetIds().GetIdentifiers() {
		converted.Identifiers = append(converted.Identifiers, api.DiskIdentifier{
			CodeSet: id.GetCodeSet(), Type: id.GetType(), Association: id.GetAssociation(), Value: id.GetValue(),
		})
	}
	if problem := disk.GetProblem(); problem != "" {
		converted.Problem = errors.New(problem)
	}
	return converted
}
