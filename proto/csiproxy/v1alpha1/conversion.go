package v1alpha1

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// The keys of DiskIDs.identifiers.
const (
	Page83Key       = "page83"
	SerialNumberKey = "serialNumber"
)

// number reads what this version gives as text: decimal digits of 32 bits, and
// nothing else.
func number(field, text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: %s %.40q is not a number from 0 to 4294967295", backend.ErrInvalid, field, text)
	}
	return uint32(n), nil
}

func numberText(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// DiskLocationsFromHub leaves out disks without an address.
func DiskLocationsFromHub(disks []api.Disk) map[string]*DiskLocation {
	locations := map[string]*DiskLocation{}
	for _, disk := range disks {
		if at := disk.Location; at != nil {
			locations[numberText(disk.Number)] = &DiskLocation{Adapter: at.Adapter, Bus: at.Bus, Target: at.Target, Lun: at.LUN}
		}
	}
	return locations
}

// DiskIDsFromHub leaves out disks that could not be read.
func DiskIDsFromHub(disks []api.Disk) map[string]*DiskIDs {
	ids := map[string]*DiskIDs{}
	for _, disk := range disks {
		said := map[string]string{}
		if disk.Page83 != "" {
			said[Page83Key] = disk.Page83
		}
		if disk.SerialNumber != "" {
			said[SerialNumberKey] = disk.SerialNumber
		}
		for i, id := range disk.Identifiers {
			said[fmt.Sprintf("%s.%d", Page83Key, i)] = id.Value
		}
		if disk.Problem == nil || len(said) > 0 {
			ids[numberText(disk.Number)] = &DiskIDs{Identifiers: said}
		}
	}
	return ids
}

// PortalToHub reads ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.
func PortalToHub(text string) (api.Portal, error) {
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		return api.Portal{Address: text[1 : len(text)-1]}, nil
	}
	if strings.Count(text, ":") != 1 && !strings.HasPrefix(text, "[") {
		return api.Portal{Address: text}, nil // no port: a name or an IPv6 address
	}
	address, port, err := net.SplitHostPort(text)
	if err != nil {
		return api.Portal{}, fmt.Errorf("%w: portal %.80q is not ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT", backend.ErrInvalid, text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return api.Portal{}, fmt.Errorf("%w: portal %.80q has no port from 1 to 65535", backend.ErrInvalid, text)
	}
	return api.Portal{Address: address, Port: uint32(n)}, nil
}

// LoginToHub takes a login with a user or secret for one by CHAP.
func LoginToHub(request *MountISCSILunRequest) (login api.ISCSILogin, lun uint32, err error) {
	login = api.ISCSILogin{IQN: request.GetIqn(), Username: request.GetChapUsername(), Secret: api.Secret(request.GetChapSecret())}
	if login.Username != "" || login.Secret != "" {
		login.Auth = api.OneWayCHAP
	}
	if login.Portal, err = PortalToHub(request.GetPortal()); err != nil {
		return login, 0, err
	}
	lun, err = number("lun", request.GetLun())
	return login, lun, err
}

// SMBMountToHub is what MountSMBShare asks for.
func SMBMountToHub(request *MountSMBShareRequest) api.SMBMount {
	return api.SMBMount{
		Remote: request.GetRemotePath(), Local: request.GetStagingPath(),
		Username: request.GetUsername(), Password: api.Secret(request.GetPassword()),
	}
}
