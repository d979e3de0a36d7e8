package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A page keeps the columns of earlier runs, and all that is not between its markers.
func TestScaleResults_columnsOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	const begin, end = "<!-- make bench-scale, 20000 volumes -->", "<!-- end of make bench-scale, 20000 volumes -->"
	if err := os.WriteFile(page, []byte("before\n"+begin+"\nstale\n"+end+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := settings{claims: 1000, objects: 20000, alternative: "theirs", alternatives: list{"/bin/csi-provisioner --node-deployment"}}
	s.nodes, s.few, s.results = 1000, 30, filepath.Join(dir, "results.json")
	all := s.designs()
	if len(all) != 4 || !all[0].coordinated() || !all[1].coordinated() || all[2].coordinated() || all[3].coordinated() {
		t.Fatalf("%v", all)
	}
	for _, d := range []design{all[3], all[0]} { // in any order
		results, err := readScaleResults(s)
		if err != nil {
			t.Fatal(err)
		}
		if results.has(d) {
			t.Errorf("%s is measured before it is added", d)
		}
		var r scaleResult
		r.restart.sent, r.restart.api.volumes = int64(d.nodes)*2_000, 50_000
		r.idle.took, r.bound.took = time.Second, 20*time.Second
		results.add(d, "1.50", scaleCells(s, d, r))
		if err := results.write(s, page); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before\n" + begin, end + "\nafter\n",
		"| Work | Holdfast, 1000 nodes | theirs, 30 nodes | Aim |",
		"| — restart: claims and volumes sent, for each that exists | 1.25 | 1.25 | 1 to 2 |",
		"| — restart: bytes sent for each node | 2.0 KB | 2.0 KB | - |",
		"| 1000 claims to Bound | 20.00 s | 20.00 s | - |",
		"theirs is `csi-provisioner --node-deployment`",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "stale") {
		t.Errorf("keeps what was between the markers:\n%s", text)
	}
}
