package v1beta1

import (
	"fmt"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// LocationFromHub gives nil for a disk without an address, or with one that is
// not in decimal digits.
func LocationFromHub(location *api.DiskLocation) *DiskLocation {
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

// DiskLocationsFromHub leaves out disks without an address.
func DiskLocationsFromHub(disks []api.Disk) map[uint32]*DiskLocation {
	locations := map[uint32]*DiskLocation{}
	for _, disk := range disks {
		if location := LocationFromHub(disk.Location); location != nil {
			locations[disk.Number] = location
		}
	}
	return locations
}

func idsFromHub(disk api.Disk) *DiskIDs {
	ids := &DiskIDs{Page83: disk.Page83, SerialNumber: disk.SerialNumber}
	for _, id := range disk.Identifiers {
		ids.Identifiers = append(ids.Identifiers, &DiskIdentifier{
			CodeSet: id.CodeSet, Type: id.Type, Association: id.Association, Value: id.Value,
		})
	}
	return ids
}

// DiskIDsFromHub leaves out disks that could not be read.
func DiskIDsFromHub(disks []api.Disk) map[uint32]*DiskIDs {
	ids := map[uint32]*DiskIDs{}
	for _, disk := range disks {
		if disk.Problem == nil || disk.Page83 != "" || disk.SerialNumber != "" {
			ids[disk.Number] = idsFromHub(disk)
		}
	}
	return ids
}

// PortalToHub takes a missing portal for an empty one, which the host refuses.
func PortalToHub(portal *ISCSIPortal) api.Portal {
	return api.Portal{Address: portal.GetAddress(), Port: portal.GetPort()}
}

// AuthTypeToHub refuses a number that this version does not have.
func AuthTypeToHub(auth ISCSIAuthType) (api.AuthType, error) {
	switch auth {
	case ISCSIAuthType_ISCSI_AUTH_TYPE_NONE:
		return api.NoAuth, nil
	case ISCSIAuthType_ISCSI_AUTH_TYPE_ONE_WAY_CHAP:
		return api.OneWayCHAP, nil
	}
	return 0, fmt.Errorf("%w: auth_type %d is none of this version's", backend.ErrInvalid, auth)
}

// LoginToHub is the login of MountISCSILun.
func LoginToHub(request *MountISCSILunRequest) (api.ISCSILogin, error) {
	auth, err := AuthTypeToHub(request.GetAuthType())
	return api.ISCSILogin{
		Portal: PortalToHub(request.GetPortal()), IQN: request.GetIqn(), Auth: auth,
		Username: request.GetChapUsername(), Secret: api.Secret(request.GetChapSecret()),
	}, err
}

// SMBMountToHub is what MountSMBShare asks for.
func SMBMountToHub(request *MountSMBShareRequest) api.SMBMount {
	return api.SMBMount{
		Remote: request.GetRemotePath(), Local: request.GetStagingPath(),
		Username: request.GetUsername(), Password: api.Secret(request.GetPassword()),
	}
}
