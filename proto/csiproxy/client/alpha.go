package client

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

// inV1alpha1 sends a message of v1alpha1 and converts its response, both by the names
// of their fields. Fields that have another form in v1alpha1 are converted by hand.
func inV1alpha1(ctx context.Context, c call) error {
	service := v1alpha1.File_proto_csiproxy_v1alpha1_api_proto.Services().Get(0)
	method := service.Methods().ByName(protoreflect.Name(c.method))
	if method == nil {
		return c.cannot(c.method, c.since())
	}
	if err := c.needsV1(); err != nil {
		return err
	}
	if r, ok := c.request.(*v1.RmdirRequest); ok && r.GetForce() {
		return c.cannot("Rmdir with force", v1beta1.Version)
	}
	asked, ok := c.request.(proto.Message)
	if !ok {
		return fmt.Errorf("%s: the request is a %T, which is not a message", c.method, c.request)
	}
	names := convert.Names{"disk_number": "disk_id"}
	request, response := convert.NewMessage(method.Input()), convert.NewMessage(method.Output())
	if err := convert.Message(asked, request, names); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	if r, ok := c.request.(*v1.MountISCSILunRequest); ok {
		lunToAlpha(r, request.(*v1alpha1.MountISCSILunRequest)) //nolint:forcetypeassert // the method's
	}
	if err := c.send(ctx, string(service.FullName()), request, response); err != nil {
		return err
	}
	answer, ok := c.response.(proto.Message)
	if !ok {
		return fmt.Errorf("%s: the response is a %T, which is not a message", c.method, c.response)
	}
	if err := convert.Message(response, answer, names.Inverse()); err != nil {
		return fmt.Errorf("csi-proxy's answer to %s in %s: %w", c.method, v1alpha1.Version, err)
	}
	if r, ok := response.(*v1alpha1.GetDiskIDsResponse); ok {
		idsFromAlpha(r, answer.(*v1.GetDiskIDsResponse)) //nolint:forcetypeassert // the method's
	}
	return nil
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

// lunToAlpha completes a login: v1alpha1 has the portal as a text, and takes a login
// with a user or a secret for one by CHAP.
func lunToAlpha(from *v1.MountISCSILunRequest, to *v1alpha1.MountISCSILunRequest) {
	to.Portal = portalText(from.GetPortal())
	if from.GetAuthType() == v1.ISCSIAuthType_ISCSI_AUTH_TYPE_NONE {
		to.ChapUsername, to.ChapSecret = "", ""
	}
}

// idsFromAlpha adds the identifiers, which v1alpha1 has in a map. It has only the
// values of the identifiers in VPD page 0x83.
func idsFromAlpha(from *v1alpha1.GetDiskIDsResponse, to *v1.GetDiskIDsResponse) {
	for disk, from := range from.GetDiskIds() {
		number, _ := strconv.ParseUint(disk, 10, 32) // convert has checked it
		ids, said := to.GetDiskIds()[uint32(number)], from.GetIdentifiers()
		ids.Page83, ids.SerialNumber = said[v1alpha1.Page83Key], said[v1alpha1.SerialNumberKey]
		for i := 0; ; i++ {
			value, ok := said[fmt.Sprintf("%s.%d", v1alpha1.Page83Key, i)]
			if !ok {
				break
			}
			ids.Identifiers = append(ids.Identifiers, &v1.DiskIdentifier{Value: value})
		}
	}
}

// portalText is ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.
func portalText(p *v1.ISCSIPortal) string {
	if p.GetPort() == 0 {
		return strings.Trim(p.GetAddress(), "[]")
	}
	return net.JoinHostPort(strings.Trim(p.GetAddress(), "[]"), strconv.FormatUint(uint64(p.GetPort()), 10))
}
