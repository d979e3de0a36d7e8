package keylock

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestTryLock_secondIsRefusedUntilRelease(t *testing.T) {
	var locks Locks
	unlock, ok := locks.TryLock("a")
	if !ok {
		t.Fatal("a free key was refused")
	}
	if _, ok := locks.TryLock("a"); ok {
		t.Fatal("a held key was given twice")
	}
	unlock()
	if _, ok := locks.TryLock("a"); !ok {
		t.Fatal("a released key was refused")
	}
}

func TestTryLock_takesAllOrNone(t *testing.T) {
	var locks Locks
	unlock, _ := locks.TryLock("b")
	if _, ok := locks.TryLock("a", "b"); ok {
		t.Fatal("got a set with a held key")
	}
	if _, ok := locks.TryLock("a"); !ok {
		t.Fatal("a refused set left one of its keys held")
	}
	unlock()
}

func TestTryLock_oneKeyTwiceInOneCall(t *testing.T) {
	var locks Locks
	unlock, ok := locks.TryLock("a", "a")
	if !ok {
		t.Fatal("a repeated key in one call is one key")
	}
	unlock()
	if _, ok := locks.TryLock("a"); !ok {
		t.Fatal("still held")
	}
}

func TestTryShare_sharersExcludeAnOwnerAndViceVersa(t *testing.T) {
	var locks Locks
	first, ok := locks.TryShare("source")
	if !ok {
		t.Fatal("a free key was refused")
	}
	second, ok := locks.TryShare("source")
	if !ok {
		t.Fatal("a second sharer was refused")
	}
	first()
	if _, ok := locks.TryLock("source"); ok {
		t.Fatal("an owner got in beside a sharer")
	}
	second()
	owner, ok := locks.TryLock("source")
	if !ok {
		t.Fatal("the key was not free after the last sharer")
	}
	if _, ok := locks.TryShare("source"); ok {
		t.Fatal("a sharer got in beside the owner")
	}
	owner()
}

func TestTryLock_holdsUnderContention(t *testing.T) {
	var locks Locks
	var inside, most atomic.Int32
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 500 {
				unlock, ok := locks.TryLock("volume")
				if !ok {
					continue
				}
				if now := inside.Add(1); now > most.Load() {
					most.Store(now)
				}
				inside.Add(-1)
				unlock()
			}
		})
	}
	group.Wait()
	if most.Load() != 1 {
		t.Fatalf("%d holders at once", most.Load())
	}
}
