package world

import (
	"regexp"
	"strings"
)

// deviceName matches the names that EC2 accepts: the documented /dev/sd[a-z] and
// /dev/xvd[b-c][a-z], the two partitions of a root device, and without documentation
// /dev/xvdaa to /dev/xvddx.
var deviceName = regexp.MustCompile(`^/dev/(sd[a-z]|sda[12]|xvd[a-z]|xvd[a-c][a-z]|xvdd[a-x])$`)

// checkName rejects a malformed name, and one that is in use.
func (w *World) checkName(i *instance, name string) *Error {
	if !deviceName.MatchString(name) {
		return invalid("Value (%s) for parameter device is invalid. %s is not a valid EBS device name.", name, name)
	}
	if w.nameTaken(i, name) {
		return invalid("Invalid value '%s' for unixDevice. Attachment point %s is already in use", name, name)
	}
	return nil
}

// nameTaken reports whether a name is used by an attachment in any state, invisibly by the
// image, or by a forced detach since the last boot.
func (w *World) nameTaken(i *instance, name string) bool {
	held := func(other string) bool { return w.sameName(i, other, name) }
	if anyOf(i.Hidden, held) || anyOf(i.Spoiled, held) {
		return true
	}
	return anyOf(i.Volumes, func(id string) bool {
		v := w.Volumes[id]
		if v == nil {
			return false
		}
		a := v.at(i.ID)
		return a != nil && (held(a.Device) || held(a.name()))
	})
}

// sameName reports whether two names mean the same device. A Xen guest shows /dev/sdf as
// /dev/xvdf.
func (w *World) sameName(i *instance, a, b string) bool {
	if a == b {
		return true
	}
	if !w.typeOf(i).Xen {
		return false
	}
	return strings.Replace(a, "/dev/sd", "/dev/xvd", 1) == strings.Replace(b, "/dev/sd", "/dev/xvd", 1)
}

// otherName is a free name that was not requested.
func (w *World) otherName(i *instance) string {
	for letter := 'z'; letter >= 'a'; letter-- {
		if name := "/dev/xvdc" + string(letter); !w.nameTaken(i, name) {
			return name
		}
	}
	return ""
}
