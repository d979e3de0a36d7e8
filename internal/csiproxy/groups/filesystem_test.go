package groups

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/backend"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem/v1beta1"
	. "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
)

const (
	path   = `C:\var\lib\kubelet\plugins\x`
	source = `C:\var\lib\kubelet\plugins\globalmount`
	target = `C:\var\lib\kubelet\pods\1\mount`
)

// The calls on directories and links that NodeStage and NodePublish need, in all versions.
func TestFilesystemVersions_areThoseOfTheWire(t *testing.T) {
	alpha1 := []Exchange{
		Sent("PathExists", Text(1, path), Number(2, 1)).Asks("PathExists " + path).Answers(Yes(2)),
		Sent("Mkdir", Text(1, path), Number(2, 1)).Asks("Mkdir " + path),
		Sent("Rmdir", Text(1, path), Number(2, 1), Yes(3)).Asks("Rmdir " + path + " true"),
		Sent("Rmdir", Text(1, path), Number(2, 1)).Asks("Rmdir " + path + " false"),
		Sent("LinkPath", Text(1, source), Text(2, target)).Asks("Link source " + source + " link " + target),
		Sent("IsMountPoint", Text(1, path)).Asks("IsLink " + path).Answers(Yes(2)),
	}
	beta2 := []Exchange{
		Sent("PathExists", Text(1, path)).Asks("PathExists " + path).Answers(Yes(1)),
		Sent("Mkdir", Text(1, path)).Asks("Mkdir " + path),
		Sent("Rmdir", Text(1, path), Yes(2)).Asks("Rmdir " + path + " true"),
		Sent("Rmdir", Text(1, path)).Asks("Rmdir " + path + " false"),
		Sent("CreateSymlink", Text(1, source), Text(2, target)).Asks("Link source " + source + " link " + target),
		Sent("IsSymlink", Text(1, path)).Asks("IsLink " + path).Answers(Yes(1)),
	}
	Check(t, filesystemVersions(), map[string][]Exchange{
		"v1alpha1": alpha1,
		"v1beta1":  alpha1,
		"v1beta2":  beta2,
		"v1":       beta2,
		"v2alpha1": slices.Concat(beta2, []Exchange{
			Sent("RmdirContents", Text(1, path)).Asks("RmdirContents " + path),
		}),
	})
}

func TestFilesystemContext_isRefusedWhenItIsNeitherPluginNorPod(t *testing.T) {
	for _, definition := range filesystemVersions() {
		if definition.Version != "v1alpha1" && definition.Version != "v1beta1" {
			continue
		}
		machine := Answering()
		server := Serve(t, definition, machine.Host())
		for _, method := range []string{"PathExists", "Mkdir", "Rmdir"} {
			for _, context := range []int64{2, 77, -1} {
				_, err := server.Call(t, method, Message(Text(1, path), Number(2, context)))
				if !errors.Is(err, backend.ErrInvalid) {
					t.Errorf("%s %s, context %d: %v, want ErrInvalid", Name(definition), method, context, err)
				}
			}
		}
		if calls := machine.Calls(); calls != nil {
			t.Errorf("%s: the host was asked %q", Name(definition), calls)
		}
	}
}

// The field is never set, but clients made of these messages read it.
func TestFilesystemError_isTheFirstFieldUpToV1beta1(t *testing.T) {
	for _, response := range []interface {
		proto.Message
		GetError() string
	}{
		&pb.PathExistsResponse{}, &pb.MkdirResponse{}, &pb.RmdirResponse{}, &pb.LinkPathResponse{}, &pb.IsMountPointResponse{},
	} {
		if err := proto.Unmarshal(Text(1, "why"), response); err != nil || response.GetError() != "why" {
			t.Errorf("%T: error %q, %v", response, response.GetError(), err)
		}
	}
}
