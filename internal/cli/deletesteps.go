package cli

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// showStepsAfter is how long deletions take until their steps are shown. Most are over
// before.
const showStepsAfter = time.Second

// deletionSteps shows the steps of deletions that take long, with those before. It is also
// the writer for other messages meanwhile.
type deletionSteps struct {
	*display
	cancel  context.CancelFunc
	showing sync.WaitGroup
}

// showDeletions shows the steps of objects after an entry of the journal, until stop.
func showDeletions(
	ctx context.Context, out io.Writer, client *api.Client, after uint64, objects []deletion,
) *deletionSteps {
	about := map[api.Applied]bool{}
	for _, object := range objects {
		about[api.Applied{Kind: object.kind.Kind, Key: object.key()}] = true
	}
	s := &deletionSteps{display: newDisplay(out)}
	ctx, s.cancel = context.WithCancel(ctx)
	s.showing.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(showStepsAfter):
		}
		_ = client.WatchJournal(ctx, after, func(entry journal.Entry) error { // the result is the same without steps
			if event, ok := stepOf(entry, about); ok {
				s.observe(event)
			}
			return nil
		})
	})
	return s
}

// stop ends the display. After complete deletions, it waits for the ends of the steps that
// are shown: they are reported after their effects.
func (s *deletionSteps) stop(complete bool) {
	if complete {
		s.settle(settleLimit)
	}
	s.cancel()
	s.showing.Wait()
	s.close()
}
