package kube

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

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
	queue, worked := env.Queue("claims", nil), make(chan struct{})
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

// TestHandshake_aCentralProcessNeedsNoNode: the driver of a central process may serve
// the Node service without being configured for a node.
func TestHandshake_aCentralProcessNeedsNoNode(t *testing.T) {
	answers := map[string]func(context.Context) error{
		"no answer": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}
	for _, code := range []codes.Code{codes.Internal, codes.FailedPrecondition, codes.Unavailable, codes.Unimplemented} {
		answers[code.String()] = func(context.Context) error { return csidriver.Fail(code, "the node ID is not configured") }
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver := csidriver.New("test.holdfast.dev")
			cluster := apiserver.New(t, driver)
			env := cluster.Env
			known, err := handshake(t.Context(), env.CSI, "", env.Logger)
			if err != nil || known.nodeID == "" {
				t.Fatalf("node_id %q, %v", known.nodeID, err)
			}
			driver.Before = func(ctx context.Context, rpc string, _ any) error {
				if rpc == "NodeGetInfo" {
					return answer(ctx)
				}
				return nil
			}
			calls := driver.Count("NodeGetInfo")
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			info, err := handshake(ctx, env.CSI, "", env.Logger)
			if err != nil || info.name != driver.Name || info.nodeID != "" {
				t.Errorf("driver %q, node_id %q, %v", info.name, info.nodeID, err)
			}
			if n := driver.Count("NodeGetInfo") - calls; n != 1 {
				t.Errorf("NodeGetInfo was called %d times", n)
			}
			if !info.same(known) {
				t.Error("after a reconnection, a node_id that cannot be read counts as another driver")
			}
		})
	}
}
