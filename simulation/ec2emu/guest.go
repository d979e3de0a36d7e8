package ec2emu

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// emulatorRole is the role of the instance profile; its keys are not valid at AWS.
const emulatorRole = "ec2emu"

// guestTree has the answers of the service to an instance, by path.
func guestTree(guest world.InstanceInfo, region, account string, now time.Time) map[string]string {
	const data, placement = "latest/meta-data/", "latest/meta-data/placement/"
	tree := map[string]string{
		"latest/dynamic/instance-identity/document": identity(guest, region, account),
		data + "instance-id":                        guest.InstanceID,
		data + "instance-type":                      guest.InstanceType,
		data + "ami-id":                             guest.ImageID,
		data + "local-ipv4":                         guest.PrivateIPAddress,
		data + "local-hostname":                     guest.PrivateDNSName,
		data + "hostname":                           guest.PrivateDNSName,
		data + "services/domain":                    "amazonaws.com",
		data + "services/partition":                 "aws",
		placement + "region":                        region,
		placement + "availability-zone":             guest.Placement.AvailabilityZone,
		placement + "availability-zone-id":          guest.Placement.AvailabilityZoneID,

		data + "iam/security-credentials/" + emulatorRole: credentials(now),
	}
	if guest.OutpostARN != "" {
		tree[data+"outpost-arn"] = guest.OutpostARN
	}
	for i, card := range guest.Interfaces {
		folder := data + "network/interfaces/macs/" + card.MACAddress + "/"
		tree[folder+"mac"] = card.MACAddress
		tree[folder+"device-number"] = strconv.Itoa(int(card.Attachment.DeviceIndex))
		if i == 0 {
			tree[data+"mac"] = card.MACAddress
		}
	}
	for name, device := range guest.BootDevices {
		tree[data+"block-device-mapping/"+name] = device
	}
	return tree
}

// identity is the instance identity document.
func identity(guest world.InstanceInfo, region, account string) string {
	text, err := json.MarshalIndent(map[string]string{
		"version": "2017-09-30", "instanceId": guest.InstanceID, "instanceType": guest.InstanceType, "imageId": guest.ImageID,
		"region": region, "availabilityZone": guest.Placement.AvailabilityZone, "accountId": account,
		"privateIp": guest.PrivateIPAddress, "architecture": "x86_64", "pendingTime": guest.LaunchTime.UTC().Format(time.RFC3339),
	}, "", "  ")
	if err != nil {
		panic(err) // strings only
	}
	return string(text)
}

func credentials(now time.Time) string {
	text, err := json.MarshalIndent(map[string]string{
		"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": now.UTC().Format(time.RFC3339),
		"AccessKeyId": "ASIAEC2EMU", "SecretAccessKey": "ec2emu", "Token": "ec2emu",
		"Expiration": now.Add(6 * time.Hour).UTC().Format(time.RFC3339),
	}, "", "  ")
	if err != nil {
		panic(err) // strings only
	}
	return string(text)
}

// InstanceByAddress identifies the instance by the source address of a request: by the
// first network that contains it.
func InstanceByAddress(networks []netip.Prefix, instances []string) func(*http.Request) string {
	return func(r *http.Request) string {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return ""
		}
		address, err := netip.ParseAddr(host)
		if err != nil {
			return ""
		}
		for i, network := range networks {
			if network.Contains(address.Unmap()) {
				return instances[i]
			}
		}
		return ""
	}
}
