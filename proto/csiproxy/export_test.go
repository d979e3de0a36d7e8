package csiproxy

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func olderBy(version string) older {
	if version == beta().version {
		return beta()
	}
	return alpha()
}

// ToStable converts a request of an older version to v1's.
func ToStable(version, method string, request proto.Message) (proto.Message, error) {
	o := olderBy(version)
	return o.toStable(o.service.Methods().ByName(protoreflect.Name(method)), request)
}

// FromStable converts a response of v1 to that of an older version.
func FromStable(version, method string, response proto.Message) (proto.Message, error) {
	o := olderBy(version)
	return o.fromStable(o.service.Methods().ByName(protoreflect.Name(method)), response)
}
