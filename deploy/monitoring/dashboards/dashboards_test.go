package dashboards

import "testing"

func TestAll_haveQueries(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 5 {
		t.Errorf("%d dashboards, want 5", len(all))
	}
	for _, d := range all {
		if n := len(d.Queries()); n < 10 {
			t.Errorf("%s has %d queries", d.Name, n)
		}
	}
}

func TestSpans_fillEachLine(t *testing.T) {
	for panels := 1; panels <= 13; panels++ {
		var sum uint32
		widths := spans(panels)
		for _, width := range widths {
			sum += width
		}
		if len(widths) != panels || sum%24 != 0 {
			t.Errorf("%d panels have the widths %v", panels, widths)
		}
	}
}
