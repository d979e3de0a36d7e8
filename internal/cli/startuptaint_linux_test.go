package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/csi/server"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestDriver_takesTheStartupTaintOffItsNode(t *testing.T) {
	needRoot(t)
	const name = "local.holdfast.dev"
	count := int32(3)
	c := apiserver.New(t, csidriver.New(name),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: name + "/agent-not-ready", Effect: corev1.TaintEffectNoExecute}}}},
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: name, NodeID: "sanity", Allocatable: &storagev1.VolumeNodeResources{Count: &count}}},
		}})
	config := sanityDriver(t.TempDir(), server.All)
	config.logger = slog.New(slog.DiscardHandler)
	config.removeTaint, config.nodeName, config.kubeconfig = true, "one", c.Kubeconfig()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	process, err := newDriver(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- process.Run(ctx) }()
	c.Eventually(func() error {
		node, err := c.Core.CoreV1().Nodes().Get(ctx, "one", metav1.GetOptions{})
		if err == nil && len(node.Spec.Taints) > 0 {
			return errors.New("the taint is there")
		}
		return err
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDriver_refusesToRemoveATaintOfNoNode(t *testing.T) {
	for want, arguments := range map[string][]string{
		"mode controller has no node": {"driver", "controller", "--backend=local", "--remove-startup-taint", "--node-name=one"},
		"give --node-name":            {"driver", "node", "--backend=local", "--remove-startup-taint"},
	} {
		var said bytes.Buffer
		if code := Run(t.Context(), "test", arguments, &said, &said); code != exitUsage || !strings.Contains(said.String(), want) {
			t.Errorf("%v: %d: %s", arguments, code, said.String())
		}
	}
}
