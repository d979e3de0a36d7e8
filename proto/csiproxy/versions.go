// Package csiproxy has the API that the Kubernetes enhancement proposal "CSI
// plugins on Windows nodes" names, in versions. A version is a folder with its
// proto. The newest also has the conversion to package api; this package converts
// the others to the newest. Next to them is a client.
package csiproxy

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/compose"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

// Versions returns all versions of the API, the newest first.
func Versions() []api.Definition {
	operations := compose.New()
	return []api.Definition{
		v1.Definition(operations),
		beta().definition(operations),
		alpha().definition(operations),
	}
}

// beta is v1beta1, which names the fields as v1 does.
func beta() older {
	staging := rule{required: "staging_path"}
	service := v1beta1.File_proto_csiproxy_v1beta1_api_proto.Services().Get(0)
	return older{version: v1beta1.Version, service: service, rules: map[protoreflect.Name]rule{
		"PartitionDisk": {serve: partition}, "FormatVolume": staging, "MountSMBShare": staging, "UnmountSMBShare": staging,
	}}
}

// alpha is v1alpha1, to the letter of the KEP: numbers are text, a portal is
// ADDRESS:PORT, and a login with a user or a secret is one by CHAP.
func alpha() older {
	staging, disk := rule{required: "staging_path"}, convert.Names{"disk_id": "disk_number"}
	service := v1alpha1.File_proto_csiproxy_v1alpha1_api_proto.Services().Get(0)
	return older{version: v1alpha1.Version, service: service, rules: map[protoreflect.Name]rule{
		"PartitionDisk": {serve: partition, renamed: disk}, "FormatVolume": staging, "MountSMBShare": staging,
		"MountISCSILun": {renamed: disk, request: alphaLogin},
		"GetDiskIDs":    {response: alphaIDs},
	}}
}

// partition serves PartitionDisk for versions without a call that brings a disk online.
func partition(
	ctx context.Context, host api.Host, operations *compose.Operations, request proto.Message,
) (proto.Message, error) {
	disk := request.(*v1.PartitionDiskRequest).GetDiskNumber() //nolint:forcetypeassert // the rule is this method's
	volumeID, err := operations.Partition(ctx, host, disk)
	return &v1.PartitionDiskResponse{VolumeId: volumeID}, err
}

func alphaLogin(from, to proto.Message) (err error) {
	request, stable := from.(*v1alpha1.MountISCSILunRequest), to.(*v1.MountISCSILunRequest) //nolint:forcetypeassert // the rule is this method's
	if request.GetChapUsername() != "" || request.GetChapSecret() != "" {
		stable.AuthType = v1.ISCSIAuthType_ISCSI_AUTH_TYPE_ONE_WAY_CHAP
	}
	stable.Portal, err = alphaPortal(request.GetPortal())
	return err
}

// alphaPortal reads ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.
func alphaPortal(text string) (*v1.ISCSIPortal, error) {
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		return &v1.ISCSIPortal{Address: text[1 : len(text)-1]}, nil
	}
	if strings.Count(text, ":") != 1 && !strings.HasPrefix(text, "[") {
		return &v1.ISCSIPortal{Address: text}, nil // no port: a name or an IPv6 address
	}
	address, port, err := net.SplitHostPort(text)
	if err != nil {
		return nil, fmt.Errorf("%w: portal %.80q is not ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT", backend.ErrInvalid, text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%w: portal %.80q has no port from 1 to 65535", backend.ErrInvalid, text)
	}
	return &v1.ISCSIPortal{Address: address, Port: uint32(n)}, nil
}

// alphaIDs returns the identifiers as a map from keys to the disk's values.
func alphaIDs(from, to proto.Message) {
	response := to.(*v1alpha1.GetDiskIDsResponse)                       //nolint:forcetypeassert // the rule is this method's
	for disk, ids := range from.(*v1.GetDiskIDsResponse).GetDiskIds() { //nolint:forcetypeassert // the same
		identifiers := map[string]string{}
		if page83 := ids.GetPage83(); page83 != "" {
			identifiers[v1alpha1.Page83Key] = page83
		}
		if serial := ids.GetSerialNumber(); serial != "" {
			identifiers[v1alpha1.SerialNumberKey] = serial
		}
		for i, id := range ids.GetIdentifiers() {
			identifiers[fmt.Sprintf("%s.%d", v1alpha1.Page83Key, i)] = id.GetValue()
		}
		response.DiskIds[strconv.FormatUint(uint64(disk), 10)] = &v1alpha1.DiskIDs{Identifiers: identifiers}
	}
}
