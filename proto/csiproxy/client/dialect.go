package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

// call is an RPC of v1 in flight.
type call struct {
	session           *session
	method            string // such as Mkdir
	request, response any    // messages of v1
	options           []grpc.CallOption
}

// dialect makes a call of v1 in another version.
type dialect func(context.Context, call) error

func dialects() map[string]dialect {
	return map[string]dialect{
		v1.Version:       inV1,
		v1beta1.Version:  inV1beta1,
		v1alpha1.Version: inV1alpha1,
	}
}

// knownVersions are those with a dialect, the newest first.
func knownVersions() []string {
	return slices.SortedFunc(maps.Keys(dialects()), func(a, b string) int { return api.CompareVersions(b, a) })
}

func methodName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }

// send makes the call with messages of the service's version.
func (c call) send(ctx context.Context, service string, request, response any) error {
	return c.session.conn.Invoke(ctx, "/"+service+"/"+c.method, request, response, c.options...)
}

// cannot is the error for a call that a version does not have.
func (c call) cannot(what, since string) error {
	return fmt.Errorf("%w: %s needs %s; the newest version of csi-proxy on this node is %s; upgrade "+
		"csi-proxy.exe on all nodes before the plugin", ErrVersion, what, since, c.session.version)
}

func inV1(ctx context.Context, c call) error {
	return c.send(ctx, v1.CSIProxyService_ServiceDesc.ServiceName, c.request, c.response)
}

// inV1beta1 sends messages of v1: those of v1beta1 are the same, without the fields that
// v1 has added.
func inV1beta1(ctx context.Context, c call) error {
	desc := v1beta1.CSIProxyService_ServiceDesc
	if !slices.ContainsFunc(desc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == c.method }) {
		return c.cannot(c.method, v1.Version)
	}
	if err := c.needsV1(); err != nil {
		return err
	}
	return c.send(ctx, desc.ServiceName, c.request, c.response)
}

// needsV1 is the error for a request that no older version can express.
func (c call) needsV1() error {
	path, hasPath := c.request.(interface{ GetStagingPath() string })
	switch r := c.request.(type) {
	case *v1.PartitionDiskRequest:
		if r.GetExpectedIds() != nil {
			return c.cannot("PartitionDisk with the disk's IDs", v1.Version)
		}
	case *v1.MountISCSILunRequest:
		if r.GetAuthType() == v1.ISCSIAuthType_ISCSI_AUTH_TYPE_MUTUAL_CHAP {
			return c.cannot("mutual CHAP", v1.Version)
		}
	case *v1.FormatVolumeRequest, *v1.MountSMBShareRequest, *v1.UnmountSMBShareRequest:
		if hasPath && path.GetStagingPath() == "" {
			return c.cannot(c.method+" without a staging path", v1.Version)
		}
	}
	return nil
}
