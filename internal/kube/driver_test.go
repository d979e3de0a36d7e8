package kube

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestWatchDriver_retriesFailedKeysAfterAReconnection(t *testing.T) {
	driver := csidriver.New("test.holdfast.dev")
	env := apiserver.New(t, driver).Env
	env.Retry = work.Retry{Start: time.Hour, Max: time.Hour}
	info, err := handshake(t.Context(), env.CSI, "", env.Logger)
	if err != nil {
		t.Fatal(err)
	}
	queue, worked := env.Queue("claims"), make(chan struct{})
	go func() {
		_ = queue.Run(t.Context(), func(context.Context, string) (time.Duration, error) {
			worked <- struct{}{}
			return 0, fmt.Errorf("claim: %w", backend.ErrUnavailable)
		})
	}()
	reconnected, ended := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- watchDriver(ctx, env, info, reconnected) }()
	queue.Add("default/data")
	<-worked
	for queue.Failures("default/data") == 0 {
		time.Sleep(time.Millisecond)
	}
	reconnected <- struct{}{}
	select {
	case <-worked:
	case <-time.After(testTimeout):
		t.Error("the claim waits for an hour although the driver is back")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
