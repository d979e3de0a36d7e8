package groups

import (
	"testing"

	"google.golang.org/protobuf/proto"

	. "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/smb/v1beta1"
)

// SMB shares in all versions. Taking a mapping away gives up one mount.
func TestSMBVersions_areThoseOfTheWire(t *testing.T) {
	all := []Exchange{
		Sent("NewSmbGlobalMapping", Text(1, `\\srv\share\dir`), Text(2, `C:\x`), Text(3, `dom\user`), Text(4, "pass:word")).
			Asks(`Mount \\srv\share\dir at C:\x as dom\user with pass:word`),
		Sent("RemoveSmbGlobalMapping", Text(1, `\\srv\share`)).Asks(`Unmount \\srv\share at ""`),
	}
	Check(t, smbVersions(), map[string][]Exchange{"v1alpha1": all, "v1beta1": all, "v1beta2": all, "v1": all})
}

// The field is never set, but clients made of these messages read it.
func TestSMBError_isTheFirstFieldUpToV1beta1(t *testing.T) {
	for _, response := range []interface {
		proto.Message
		GetError() string
	}{&pb.NewSmbGlobalMappingResponse{}, &pb.RemoveSmbGlobalMappingResponse{}} {
		if err := proto.Unmarshal(Text(1, "why"), response); err != nil || response.GetError() != "why" {
			t.Errorf("%T: error %q, %v", response, response.GetError(), err)
		}
	}
}
