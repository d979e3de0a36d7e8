package local

import (
	"testing"

	"pgregory.net/rapid"
)

func TestLedger_whatIsLargestCanBePromised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(rapid.Float64Range(1, 50).Draw(t, "overcommit"))
		available := rapid.Int64Range(0, 1<<50).Draw(t, "available")
		l.observed(nil, available)
		thick := rapid.Bool().Draw(t, "thick")
		size := l.largest(available, thick)
		if size == 0 {
			return
		}
		if _, ok := l.promise("one", l.need(account{size: size, thick: thick}), available, 1); !ok {
			t.Fatalf("%d bytes were reported and are refused", size)
		}
		if _, ok := l.promise("two", l.need(account{size: size + 64*allocationUnit, thick: true}), available, 1); ok {
			t.Fatal("the room was promised twice")
		}
	})
}

func TestLedger_writingAndDiscardingChangeNothing(t *testing.T) {
	l := newLedger(1)
	l.set("one", account{size: 100 * mebibyte})
	l.observed(map[string]account{"one": {}}, gibibyte)
	before := l.estimate(gibibyte)
	written := map[string]account{"one": {exclusive: 50 * mebibyte}}
	l.observed(written, gibibyte-50*mebibyte)
	if after := l.estimate(gibibyte - 50*mebibyte); after < before || after > before+mebibyte {
		t.Fatalf("%d before, %d after writing", before, after)
	}
}

func TestLedger_isNotFooledByDiscards(t *testing.T) {
	l := newLedger(1)
	l.set("one", account{size: gibibyte})
	l.observed(map[string]account{"one": {exclusive: gibibyte}}, gibibyte) // written full
	if free := l.estimate(2 * gibibyte); free > gibibyte {                 // discarded, not observed yet
		t.Fatalf("%d bytes are free to promise; one GiB of them is the volume's", free)
	}
}

func TestLedger_completesReservations(t *testing.T) {
	l := newLedger(1)
	l.observed(nil, gibibyte)
	if _, ok := l.promise("one", 900*mebibyte, gibibyte, 1); !ok {
		t.Fatal("refused")
	}
	if _, ok := l.promise("two", 900*mebibyte, gibibyte, 1); ok {
		t.Fatal("promised twice")
	}
	l.release("one")
	l.observed(nil, gibibyte)
	if _, ok := l.promise("two", 900*mebibyte, gibibyte, 1); !ok {
		t.Fatal("refused after the first was given up")
	}
}
