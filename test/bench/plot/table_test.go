package main

import (
	"reflect"
	"testing"
)

func TestSections(t *testing.T) {
	const page = `# Page

| Work | Ratio |
| --- | --: |
| first | 0.50 |

## Second

**Ours, 5 volumes**

| Work | p50 |
| --- | --- |
| create | 1.66 s |
| rate | 1,242/s |
`
	got := sections(page)
	want := []section{
		{tables: []table{{header: []string{"Work", "Ratio"}, rows: [][]string{{"first", "0.50"}}}}},
		{heading: "Second", tables: []table{{title: "Ours, 5 volumes", header: []string{"Work", "p50"},
			rows: [][]string{{"create", "1.66 s"}, {"rate", "1,242/s"}}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if value, ok := number("1,242/s"); value != 1242 || !ok || !isRate("1,242/s") {
		t.Errorf("%v, %t", value, ok)
	}
	if _, ok := number("-"); ok {
		t.Error("a dash is a number")
	}
}

func TestRatios_ratesAreInverted(t *testing.T) {
	bars := ratios(table{header: []string{"Work", "Holdfast", "Ratio"}, rows: [][]string{
		{"*stage*", "4.8 ms", "0.25"}, {"attach", "275/s", "2.00"}, {"grow", "-", "-"}, {"images", "0", "0.00"},
	}})
	want := []bar{{"stage", 0.25}, {"attach", 0.5}}
	if !reflect.DeepEqual(bars, want) {
		t.Errorf("%v; want %v", bars, want)
	}
}

func TestMultiples_ofTheSameNumberOfNodes(t *testing.T) {
	base, all := multiples(table{
		header: []string{"Work", "Holdfast, 1000 nodes", "Holdfast, 30 nodes", "before, 30 nodes", "theirs, 30 nodes", "Aim"},
		rows: [][]string{
			{"memory", "31 MiB", "30.0 MiB (9 anonymous)", "120.0 MiB (90 anonymous)", "240.0 MiB", "-"},
			{"leader", "99 MiB", "98 MiB", "-", "-", "-"},
			{"bytes", "10.0 KB", "10.0 KB", "300.0 KB", "5.0 KB", "-"},
		},
	})
	want := []multiple{
		{"before, 30 nodes", []bar{{"memory", 4}, {"bytes", 30}}},
		{"theirs, 30 nodes", []bar{{"memory", 8}, {"bytes", 0.5}}},
	}
	if base != "Holdfast, 30 nodes" || !reflect.DeepEqual(all, want) {
		t.Errorf("%s: %v; want %v", base, all, want)
	}
}
