package run_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
)

// crashPod appends a line to a file in the claim and in an inline volume.
func crashPod(size string) string {
	return strings.Replace(pod(size, "echo line >> /data/log; echo line >> /scratch/log; sync /data/log; cat /data/log /scratch/log", ""),
		"volumeMounts: [{name: data, mountPath: /data}]",
		"volumeMounts: [{name: data, mountPath: /data}, {name: scratch, mountPath: /scratch}]", 1) +
		"    - name: scratch\n      csi: {driver: local.holdfast.dev, fsType: ext4, volumeAttributes: {size: 16Mi}}\n"
}

// passed runs and returns every point that was passed, as many times as it was:
// NAME@N.
func (m *machine) passed(arguments ...string) []string {
	m.t.Helper()
	trace := filepath.Join(m.t.TempDir(), "trace")
	if r := m.run([]string{failpoint.TraceVariable + "=" + trace}, arguments...); r.code != 0 {
		m.t.Fatalf("run %v: %d, %s", arguments, r.code, r.stderr)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		m.t.Fatal(err)
	}
	var points []string
	times := map[string]int{}
	for name := range strings.Lines(string(text)) {
		name = strings.TrimSpace(name)
		times[name]++
		points = append(points, fmt.Sprintf("%s@%d", name, times[name]))
	}
	return points
}

func terms(point string) []string {
	name, number, _ := strings.Cut(point, "@")
	return []string{failpoint.TermsVariable + "=" + name + "=kill@" + number}
}

// TestCrash_everyPoint stops the process at every point of every operation of
// host, driver and backend, and runs again: the second run continues from the state of
// the first without loss, and a deletion removes all of it.
func TestCrash_everyPoint(t *testing.T) {
	probe := newMachine(t)
	small, large := probe.write(crashPod("16Mi")), probe.write(crashPod("32Mi"))
	creating := probe.passed("-f", small)
	using := probe.passed("-f", small)
	growing := probe.passed("-f", large)
	deleting := probe.passed("--delete", "-f", large)
	if len(creating) < 20 || len(deleting) < 4 {
		t.Fatalf("only %d and %d points were passed: %v", len(creating), len(deleting), creating)
	}
	phases := []struct {
		name    string
		points  []string
		prepare func(m *machine) // before the crash
		crash   []string
		lines   int // of the claim's file before the crash
	}{
		{"creating", creating, func(*machine) {}, []string{"-f", small}, 0},
		{"using", using, func(m *machine) { m.succeeds("-f", small) }, []string{"-f", small}, 1},
		{"growing", growing, func(m *machine) { m.succeeds("-f", small) }, []string{"-f", large}, 1},
		{"deleting", deleting, func(m *machine) { m.succeeds("-f", large) }, []string{"--delete", "-f", large}, -1},
	}
	for _, phase := range phases {
		for _, point := range phase.points {
			if testing.Short() && !strings.HasPrefix(point, "host/") {
				continue
			}
			t.Run(phase.name+"/"+strings.ReplaceAll(point, "/", "_"), func(t *testing.T) {
				t.Parallel() // half of its time is waiting for the disk
				m := newMachine(t)
				phase.prepare(m)
				crashed := m.run(terms(point), phase.crash...)
				if !crashed.killed {
					t.Logf("the point was not passed: %d %s", crashed.code, crashed.stderr)
				}
				m.comesBack(phase.crash, phase.lines)
				m.succeeds("--delete", "-f", large)
				m.isIdle()
				m.hasVolumes(0)
			})
		}
	}
}

// comesBack repeats a run that crashed. The claim has its content, and the line
// of the crashed run if that came so far; the scratch volume is new.
func (m *machine) comesBack(arguments []string, lines int) {
	m.t.Helper()
	r := m.succeeds(arguments...)
	if lines < 0 {
		return
	}
	m.isIdle()
	m.hasVolumes(1)
	if got := strings.Count(r.stdout, "line") - 1; got < lines+1 || got > lines+2 { // 1 is the scratch volume's
		m.t.Errorf("the claim has %d lines; before the crash it had %d:\n%s", got, lines, r.stdout)
	}
}

// TestCrash_anyMoment kills the process at random moments, workload and all.
func TestCrash_anyMoment(t *testing.T) {
	m := newMachine(t)
	file := m.write(crashPod("16Mi"))
	m.succeeds("-f", file)
	start := time.Now()
	m.succeeds("-f", file)
	length := time.Since(start)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range rounds {
		command := m.command("-f", file)
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.Int64N(int64(length))))
		if err := command.Process.Signal(syscall.SIGKILL); err != nil && !strings.Contains(err.Error(), "finished") {
			t.Fatal(err)
		}
		_ = command.Wait()
	}
	r := m.succeeds("-f", file)
	if lines := strings.Count(r.stdout, "line") - 1; lines < 3 || lines > rounds+3 {
		t.Errorf("the claim has %d lines after %d runs", lines, rounds+3)
	}
	m.isIdle()
	m.hasVolumes(1)
	m.succeeds("--delete", "-f", file)
	m.hasVolumes(0)
}
