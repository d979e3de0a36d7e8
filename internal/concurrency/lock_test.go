package concurrency

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
		t.Fatal("a locked key was locked again")
	}
	unlock()
	if _, ok := locks.TryLock("a"); !ok {
		t.Fatal("an unlocked key was refused")
	}
}

func TestTryLock_locksAllOrNone(t *testing.T) {
	var locks Locks
	unlock, _ := locks.TryLock("b")
	if _, ok := locks.TryLock("a", "b"); ok {
		t.Fatal("got a set with a locked key")
	}
	if _, ok := locks.TryLock("a"); !ok {
		t.Fatal("a refused set left one of its keys locked")
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
		t.Fatal("still locked")
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
		t.Fatal("an owner got in next to a sharer")
	}
	second()
	owner, ok := locks.TryLock("source")
	if !ok {
		t.Fatal("the key was not free after the last sharer")
	}
	if _, ok := locks.TryShare("source"); ok {
		t.Fatal("a sharer got in next to the owner")
	}
	owner()
}

func TestTryLock_hasOneOwnerUnderContention(t *testing.T) {
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
		t.Fatalf("%d owners at once", most.Load())
	}
}
