package csidriver

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/csi/message"
)

// The first calls fail and say every secret; the next succeeds.
func TestRepeats_showsWhatItWasGiven(t *testing.T) {
	r := &Repeats{Times: 2, Remark: "as given"}
	request := &csi.NodePublishVolumeRequest{
		Secrets:       map[string]string{"p": "a-secret\n"},
		VolumeContext: map[string]string{message.TokensKey: `{"vault":{"token":"a-token"}}`},
	}
	for i := range 3 {
		err := r.Before(context.Background(), "NodePublishVolume", request)
		if (err != nil) != (i < 2) {
			t.Fatalf("call %d: %v", i, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "-p a-secret;") || !strings.Contains(err.Error(), "-p a-token;") || !strings.Contains(err.Error(), "as given")) {
			t.Errorf("call %d says %v", i, err)
		}
	}
	if err := r.Before(context.Background(), "NodeUnpublishVolume", &csi.NodeUnpublishVolumeRequest{}); err != nil || r.Count("NodePublishVolume") != 3 {
		t.Errorf("a call without secrets: %v; with secrets %d calls", err, r.Count("NodePublishVolume"))
	}
	if forms := Repeated("a-secret"); !slices.Contains(forms, "Secret data YS1zZWNyZXQ=") {
		t.Errorf("the forms are %q", forms)
	}
}
