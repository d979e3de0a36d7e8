package lab_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// counter is a world of two processes that add to a number. One reads and writes it in two
// steps, so that it overwrites what another process adds between them.
func counter(l *lab.Lab) error {
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	number, added := 0, 0
	for _, name := range []string{"a", "b"} {
		p := l.Process(name)
		working.Go(func() {
			for range 5 {
				if _, err := p.Pass(ctx, lab.Step{Kind: "read", Object: "number"}); err != nil {
					return
				}
				read := number
				fault, err := p.Pass(ctx, lab.Step{Kind: "write", Object: "number", Faults: []string{"refused"}})
				if err != nil {
					return
				}
				if fault == "" {
					number, added = read+1, added+1
				}
				time.Sleep(time.Minute)
			}
		})
	}
	return l.Chaos(20, lab.Plan{Check: func() error {
		if number != added {
			return fmt.Errorf("the number is %d after %d additions", number, added)
		}
		return nil
	}})
}

func TestRun_findsRepeatsAndShrinksAFailure(t *testing.T) {
	for seed := range uint64(200) {
		first := lab.Run(t, seed, counter)
		if again := lab.Run(t, seed, counter); again.Hash != first.Hash {
			t.Fatalf("seed %d has traces %s and %s", seed, first.Hash, again.Hash)
		}
		if first.Err == nil {
			continue
		}
		if replayed := lab.Replay(t, first.Choices, counter); replayed.Hash != first.Hash {
			t.Fatalf("the choices of seed %d have another trace than the seed", seed)
		}
		shrunk := lab.Shrink(t, first, counter)
		if shrunk.Err == nil || len(shrunk.Choices) > 8 {
			t.Errorf("seed %d fails with %q, shrunk %q: %v", seed, first.Choices, shrunk.Choices, shrunk.Err)
		}
		t.Logf("seed %d: %q, shrunk to %q:\n%s", seed, first.Choices, shrunk.Choices, strings.Join(shrunk.Trace, "\n"))
		return
	}
	t.Fatal("no seed lets both processes overwrite each other")
}

// A process that dies takes none of its steps, and one that is paused takes them later.
func TestProcess_deathAndPause(t *testing.T) {
	world := func(l *lab.Lab) error {
		dying, paused := l.Process("dying"), l.Process("paused")
		ended := make(chan error, 2)
		for _, p := range []*lab.Process{dying, paused} {
			go func() {
				_, err := p.Pass(context.Background(), lab.Step{Kind: "step"})
				ended <- err
			}()
		}
		paused.Pause(true)
		if err := l.Chaos(0, lab.Plan{}); err != nil || len(l.Waiting()) != 2 {
			return fmt.Errorf("waiting: %v, %w", l.Waiting(), err)
		}
		dying.Crash()
		if err := <-ended; !errors.Is(err, lab.ErrDead) {
			return fmt.Errorf("the dead process got %w", err)
		}
		if _, err := dying.Pass(context.Background(), lab.Step{}); !errors.Is(err, lab.ErrDead) {
			return fmt.Errorf("the dead process took a step: %w", err)
		}
		paused.Pause(false)
		return l.Converge(lab.Plan{}, func() error {
			select {
			case err := <-ended:
				return err
			default:
				return errors.New("the paused process has not continued")
			}
		})
	}
	if result := lab.Run(t, 1, world); result.Err != nil {
		t.Error(result.Err)
	}
}

func TestChoices_text(t *testing.T) {
	want := lab.Choices{3, 0, 0, 0, 1, 1, 7}
	if text := want.String(); text != "3 0*3 1*2 7" {
		t.Errorf("the text is %q", text)
	}
	got, err := lab.ParseChoices(want.String())
	if err != nil || got.String() != want.String() {
		t.Errorf("read %v, %v", got, err)
	}
	for _, wrong := range []string{"x", "1*x"} {
		if _, err := lab.ParseChoices(wrong); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}
