package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// idleTimeout bounds how long a run waits, at its start and at its end, for what
// the controllers have to do: volumes of an earlier run that was killed, and
// volumes of claims that were deleted. The next run continues unfinished work.
const idleTimeout = 30 * time.Second

// Run serves this host in the process and calls use with a client of it. When
// use returns and the controllers have nothing to do, the host ends. A context
// that ends does not end the host before use returns.
func (h *Host) Run(ctx context.Context, use func(ctx context.Context, client *Attached) error) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- h.serveRun(serving, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		return err
	case <-ctx.Done():
		stop()
		return errors.Join(context.Cause(ctx), <-ended)
	}
	client := api.Dial(h.runSocket())
	attached := &Attached{
		Client: client, Root: h.paths.Root, Private: h.options.Private, Values: h.values, AwaitGone: h.awaitDeleted,
	}
	// The host may end by itself: its driver failed, say.
	using, cancel := context.WithCancelCause(ctx)
	served := make(chan error, 1)
	go func() {
		err := <-ended
		cancel(err)
		served <- err
	}()
	err := h.awaitIdle(using)
	if err == nil {
		err = use(using, attached)
	}
	if idle := h.awaitIdle(context.WithoutCancel(ctx)); err == nil {
		err = idle
	}
	client.Close()
	stop()
	return errors.Join(err, <-served)
}

// awaitIdle returns when the controllers have nothing to do, or after
// idleTimeout.
func (h *Host) awaitIdle(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	if err := h.set.Await(waiting, h.set.Idle); ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

func (h *Host) values(kind, key string) (found map[string][]byte, err error) {
	err = h.store.View(func(tx *store.Tx) error {
		found, err = tx.Values(kind, key)
		return err
	})
	return found, err
}

// awaitDeleted returns when an object that is being deleted is gone. It fails if the
// object still exists when the controllers are idle.
func (h *Host) awaitDeleted(ctx context.Context, kind store.Kind, namespace, name string) error {
	key := name
	if kind.Namespaced {
		key = store.Key(namespace, name)
	}
	gone := func() (gone bool, err error) {
		err = h.store.View(func(tx *store.Tx) error {
			object, err := tx.Objects(kind).Get(key)
			gone = object == nil
			return err
		})
		return gone, err
	}
	var isGone bool
	var failed error
	err := h.set.Await(ctx, func() bool {
		isGone, failed = gone()
		return isGone || failed != nil || h.set.Idle()
	})
	if err == nil && failed == nil && !isGone {
		isGone, failed = gone() // it went before the controllers became idle
	}
	if err = errors.Join(err, failed); err != nil || isGone {
		return err
	}
	return fmt.Errorf("%s %q is not deleted yet: %s", kind.Kind, key, h.whyNot(kind, key))
}
