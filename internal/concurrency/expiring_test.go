package concurrency

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestExpiring_anEntryLastsForItsLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Expiring[string, int]
		m.Set("a", 1, time.Minute)
		time.Sleep(time.Minute - 1)
		if v, ok := m.Get("a"); !ok || v != 1 {
			t.Errorf("just before the end: %d, %t", v, ok)
		}
		m.Adjust("a", func(v int) int { return v + 1 })
		if v, _ := m.Get("a"); v != 2 {
			t.Errorf("adjusted to %d, want 2", v)
		}
		time.Sleep(time.Nanosecond)
		if v, ok := m.Get("a"); ok || v != 0 || len(m.All()) != 0 {
			t.Errorf("after the end, read and adjusted before: %d, %t, %v", v, ok, m.All())
		}
		m.Adjust("a", func(int) int { return 3 })
		m.Update("a", time.Minute, func(v int, ok bool) int {
			if ok || v != 0 {
				t.Errorf("an update after the end gets %d, %t", v, ok)
			}
			return 4
		})
		m.Update("a", time.Minute, func(v int, _ bool) int { return v + 1 })
		if all := m.All(); len(all) != 1 || all["a"] != 5 {
			t.Errorf("updated to %v", all)
		}
		m.Delete("a")
		if _, ok := m.Get("a"); ok {
			t.Error("a deleted key has a value")
		}
	})
}

func TestExpiring_keepsNoExpiredEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Expiring[int, struct{}]
		for i := range 1000 {
			m.Set(i, struct{}{}, time.Minute)
			time.Sleep(time.Second)
		}
		if n := len(m.entries); n > 121 {
			t.Errorf("%d entries are in memory, of which 60 are valid", n)
		}
	})
}
