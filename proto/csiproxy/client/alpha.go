package client

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

// translation is a call in v1alpha1: its request, an empty response, and what
// turns that into v1's.
type translation struct {
	request, response proto.Message
	back              func() (proto.Message, error)
}

func inV1alpha1(ctx context.Context, c call) error {
	t, err := c.toAlpha()
	if err != nil {
		return err
	}
	if err := c.send(ctx, v1alpha1.CSIProxyService_ServiceDesc.ServiceName, t.request, t.response); err != nil {
		return err
	}
	if t.back == nil {
		return nil // an empty response
	}
	converted, err := t.back()
	if err != nil {
		return fmt.Errorf("csi-proxy's answer to %s in %s: %w", c.method, v1alpha1.Version, err)
	}
	response, ok := c.response.(proto.Message)
	if !ok {
		return fmt.Errorf("%s: the response is a %T, no message", c.method, c.response)
	}
	proto.Merge(response, converted)
	return nil
}

func (c call) toAlpha() (translation, error) {
	switch r := c.request.(type) {
	case *v1.MkdirRequest:
		return translation{request: &v1alpha1.MkdirRequest{Path: r.GetPath()}, response: &v1alpha1.MkdirResponse{}}, nil
	case *v1.RmdirRequest:
		if r.GetForce() {
			return translation{}, c.cannot("Rmdir with force", v1beta1.Version)
		}
		return translation{request: &v1alpha1.RmdirRequest{Path: r.GetPath()}, response: &v1alpha1.RmdirResponse{}}, nil
	case *v1.LinkVolumeRequest:
		return translation{
			request:  &v1alpha1.LinkVolumeRequest{StagingPath: r.GetStagingPath(), TargetPath: r.GetTargetPath()},
			response: &v1alpha1.LinkVolumeResponse{},
		}, nil
	case *v1.RescanRequest:
		return translation{request: &v1alpha1.RescanRequest{}, response: &v1alpha1.RescanResponse{}}, nil
	case *v1.PartitionDiskRequest:
		if r.GetExpectedIds() != nil {
			return translation{}, c.cannot("PartitionDisk with the disk's IDs", v1.Version)
		}
		return partitionToAlpha(r), nil
	case *v1.GetDiskLocationsRequest:
		return locationsToAlpha(), nil
	case *v1.GetDiskIDsRequest:
		return idsToAlpha(), nil
	case *v1.FormatVolumeRequest:
		return c.formatToAlpha(r)
	case *v1.ResizeVolumeRequest:
		return translation{
			request:  &v1alpha1.ResizeVolumeRequest{VolumeId: r.GetVolumeId(), SizeBytes: r.GetSizeBytes()},
			response: &v1alpha1.ResizeVolumeResponse{},
		}, nil
	case *v1.MountSMBShareRequest:
		return c.shareToAlpha(r)
	case *v1.MountISCSILunRequest:
		return c.lunToAlpha(r)
	}
	return translation{}, c.cannot(c.method, c.since())
}

// since is the oldest version that has the method, if it is not v1alpha1.
func (c call) since() string {
	for _, m := range v1beta1.CSIProxyService_ServiceDesc.Methods {
		if m.MethodName == c.method {
			return v1beta1.Version
		}
	}
	return v1.Version
}

func partitionToAlpha(r *v1.PartitionDiskRequest) translation {
	response := &v1alpha1.PartitionDiskResponse{}
	return translation{
		request:  &v1alpha1.PartitionDiskRequest{DiskId: text(r.GetDiskNumber())},
		response: response,
		back: func() (proto.Message, error) {
			return &v1.PartitionDiskResponse{VolumeId: response.GetVolumeId()}, nil
		},
	}
}

func locationsToAlpha() translation {
	response := &v1alpha1.GetDiskLocationsResponse{}
	return translation{request: &v1alpha1.GetDiskLocationsRequest{}, response: response, back: func() (proto.Message, error) {
		converted := map[uint32]*v1.DiskLocation{}
		for key, at := range response.GetDiskLocations() {
			disk, err := number("disk", key)
			if err != nil {
				return nil, err
			}
			var numbers [4]uint32
			for i, field := range []string{at.GetAdapter(), at.GetBus(), at.GetTarget(), at.GetLun()} {
				if numbers[i], err = number("the location of disk "+key, field); err != nil {
					return nil, err
				}
			}
			converted[disk] = &v1.DiskLocation{Adapter: numbers[0], Bus: numbers[1], Target: numbers[2], Lun: numbers[3]}
		}
		return &v1.GetDiskLocationsResponse{DiskLocations: converted}, nil
	}}
}

func idsToAlpha() translation {
	response := &v1alpha1.GetDiskIDsResponse{}
	return translation{request: &v1alpha1.GetDiskIDsRequest{}, response: response, back: func() (proto.Message, error) {
		converted := map[uint32]*v1.DiskIDs{}
		for key, ids := range response.GetDiskIds() {
			disk, err := number("disk", key)
			if err != nil {
				return nil, err
			}
			said := ids.GetIdentifiers()
			ids := &v1.DiskIDs{Page83: said[v1alpha1.Page83Key], SerialNumber: said[v1alpha1.SerialNumberKey]}
			for i := 0; ; i++ { // of which v1alpha1 has the values only
				value, more := said[fmt.Sprintf("%s.%d", v1alpha1.Page83Key, i)]
				if !more {
					break
				}
				ids.Identifiers = append(ids.Identifiers, &v1.DiskIdentifier{Value: value})
			}
			converted[disk] = ids
		}
		return &v1.GetDiskIDsResponse{DiskIds: converted}, nil
	}}
}

// formatToAlpha knows that v1alpha1 does not report whether it has formatted.
func (c call) formatToAlpha(r *v1.FormatVolumeRequest) (translation, error) {
	if r.GetStagingPath() == "" {
		return translation{}, c.cannot("FormatVolume without a staging path", v1.Version)
	}
	return translation{
		request:  &v1alpha1.FormatVolumeRequest{VolumeId: r.GetVolumeId(), FileSystem: r.GetFileSystem(), StagingPath: r.GetStagingPath()},
		response: &v1alpha1.FormatVolumeResponse{},
	}, nil
}

func (c call) shareToAlpha(r *v1.MountSMBShareRequest) (translation, error) {
	if r.GetStagingPath() == "" {
		return translation{}, c.cannot("MountSMBShare without a staging path", v1.Version)
	}
	return translation{
		request: &v1alpha1.MountSMBShareRequest{
			RemotePath: r.GetRemotePath(), StagingPath: r.GetStagingPath(),
			Username: r.GetUsername(), Password: r.GetPassword(),
		},
		response: &v1alpha1.MountSMBShareResponse{},
	}, nil
}

func (c call) lunToAlpha(r *v1.MountISCSILunRequest) (translation, error) {
	if r.GetAuthType() == v1.ISCSIAuthType_ISCSI_AUTH_TYPE_MUTUAL_CHAP {
		return translation{}, c.cannot("mutual CHAP", v1.Version)
	}
	request := &v1alpha1.MountISCSILunRequest{Portal: portalText(r.GetPortal()), Iqn: r.GetIqn(), Lun: text(r.GetLun())}
	if r.GetAuthType() != v1.ISCSIAuthType_ISCSI_AUTH_TYPE_NONE {
		request.ChapUsername, request.ChapSecret = r.GetChapUsername(), r.GetChapSecret()
	}
	response := &v1alpha1.MountISCSILunResponse{}
	return translation{request: request, response: response, back: func() (proto.Message, error) {
		disk, err := number("disk_id", response.GetDiskId())
		return &v1.MountISCSILunResponse{DiskNumber: disk}, err
	}}, nil
}

// portalText is ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.
func portalText(p *v1.ISCSIPortal) string {
	if p.GetPort() == 0 {
		return strings.Trim(p.GetAddress(), "[]")
	}
	return net.JoinHostPort(strings.Trim(p.GetAddress(), "[]"), text(p.GetPort()))
}

func text(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func number(what, digits string) (uint32, error) {
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is not a number of 32 bits", what, digits)
	}
	return uint32(n), nil
}
