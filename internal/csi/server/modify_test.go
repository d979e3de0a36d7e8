package server

import (
	"maps"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-csi/holdfast/internal/csi/server/volumemodifier"
)

// modifyClient calls the driver as the sidecar volume-modifier-for-k8s does.
func (i *instance) modifyClient(t *testing.T) volumemodifier.ModifyClient {
	t.Helper()
	connection, err := grpc.NewClient("unix:"+i.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return volumemodifier.NewModifyClient(connection)
}

func TestModify_servesTheSidecarOfAWS(t *testing.T) {
	plain := newPlain()
	i := start(t, Controller, memory{plain})
	ctx, client, id := t.Context(), i.modifyClient(t), i.mustCreate(t, "v").GetVolumeId()
	_, err := client.GetCSIDriverModificationCapability(ctx, &volumemodifier.GetCSIDriverModificationCapabilityRequest{})
	wantCode(t, err, codes.OK)
	modify := func(id string, parameters map[string]string) error {
		_, err := client.ModifyVolumeProperties(ctx, &volumemodifier.ModifyVolumePropertiesRequest{Name: id, Parameters: parameters})
		return err
	}
	wantCode(t, modify(id, map[string]string{"speed": "low"}), codes.OK)
	if got := plain.volumes[id].MutableParameters; !maps.Equal(got, map[string]string{"speed": "low"}) {
		t.Errorf("the volume has %v", got)
	}
	wantCode(t, modify(id, map[string]string{"kind": "x"}), codes.InvalidArgument)
	wantCode(t, modify("none", map[string]string{"speed": "low"}), codes.NotFound)
}

func TestModify_needsABackendThatModifies(t *testing.T) {
	for _, i := range []*instance{start(t, Controller, newPlain()), start(t, Node, memory{newPlain()})} {
		_, err := i.modifyClient(t).GetCSIDriverModificationCapability(t.Context(),
			&volumemodifier.GetCSIDriverModificationCapabilityRequest{})
		wantCode(t, err, codes.Unimplemented)
	}
}
