// Package nodelocal has what the controller and the nodes agree on about node-local volumes:
// the form of handles and the keys of the publish context. They are those of the AWS EBS CSI
// driver.
package nodelocal

import (
	"regexp"
	"strings"
)

// Keys of the publish context.
const (
	// DevicePathKey is of the device name that EC2 has for the attachment of any volume.
	DevicePathKey = "devicePath"
	// VolumeIDKey is of the volume that an instance has under the device name of a handle.
	VolumeIDKey = "volumeID"
)

const prefix = "local-ebs:/"

var handle = regexp.MustCompile(`^` + prefix + `/dev/([a-z0-9]{1,16})$`)

// Is reports whether a handle is meant for a node-local volume, well-formed or not.
func Is(volume string) bool { return strings.HasPrefix(volume, prefix) }

// Device returns the name in a handle, such as sdf in local-ebs://dev/sdf.
func Device(volume string) (name string, ok bool) {
	match := handle.FindStringSubmatch(volume)
	if match == nil {
		return "", false
	}
	return match[1], true
}
