package pods

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

func (f *fixture) logs(name, container string, o LogOptions) (string, error) {
	f.t.Helper()
	reader, err := f.manager.Logs(f.t.Context(), "default/"+name, container, o)
	if err != nil {
		return "", err
	}
	defer func() { _ = reader.Close() }()
	text, err := io.ReadAll(reader)
	return string(text), err
}

func TestLogs_areTheContainersOutput(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyNever, shell("main", "echo one; echo; echo '  two  three'; printf four"), shell("side", "echo side")))
	f.until("a", hasPhase(corev1.PodSucceeded))
	for _, c := range []struct {
		tail int
		want string
	}{{-1, "one\n\n  two  three\nfour\n"}, {2, "  two  three\nfour\n"}, {0, ""}, {99, "one\n\n  two  three\nfour\n"}} {
		if got, err := f.logs("a", "main", LogOptions{LogOptions: workload.LogOptions{Tail: c.tail}}); err != nil || got != c.want {
			t.Errorf("tail %d: %q, %v", c.tail, got, err)
		}
	}
	if _, err := f.logs("a", "", LogOptions{}); err == nil || !strings.Contains(err.Error(), "main, side") {
		t.Errorf("without a name: %v", err)
	}
	if _, err := f.logs("a", "other", LogOptions{}); !errors.Is(err, ErrNoContainer) {
		t.Errorf("another container: %v", err)
	}
	if _, err := f.logs("b", "main", LogOptions{}); !errors.Is(err, ErrNoPod) {
		t.Errorf("another pod: %v", err)
	}
	if _, err := f.logs("a", "main", LogOptions{Previous: true}); !errors.Is(err, ErrNoPrevious) {
		t.Errorf("previous: %v", err)
	}
}

func TestLogs_ofThePreviousAttempt(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyAlways, shell("main", `if [ -e /holdfast-test/again ]; then echo second; sleep 5010; fi; touch /holdfast-test/again; echo first`)))
	f.until("a", func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	eventually(t, func() bool {
		text, err := f.logs("a", "", LogOptions{LogOptions: workload.LogOptions{Tail: -1}})
		return err == nil && text == "second\n"
	})
	if got, err := f.logs("a", "", LogOptions{LogOptions: workload.LogOptions{Tail: -1}, Previous: true}); err != nil || got != "first\n" {
		t.Errorf("previous: %q, %v", got, err)
	}
}

func TestLogs_areFollowedOverRotationToTheEnd(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.manager.options.LogLimit = 2 << 10
	f.apply(newPod("a", corev1.RestartPolicyNever, shell("main",
		"i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; while [ ! -e /holdfast-test/go ]; do sleep 0.01; done; echo last")))
	f.until("a", hasPhase(corev1.PodRunning))
	reader, err := f.manager.Logs(t.Context(), "default/a", "main", LogOptions{LogOptions: workload.LogOptions{Follow: true, Tail: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	lines := bufio.NewScanner(reader)
	count := 0
	for lines.Scan() {
		if count++; count == 60 {
			if err := os.WriteFile(filepath.Join(f.root, "volume-data", "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := lines.Err(); err != nil || count != 61 {
		t.Fatalf("%d lines, %v", count, err)
	}
}

func TestLogs_followingEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyAlways, shell("main", "sleep 5011")))
	f.until("a", hasPhase(corev1.PodRunning))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, err := f.manager.Logs(ctx, "default/a", "main", LogOptions{LogOptions: workload.LogOptions{Follow: true}})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, cancel)
	if text, err := io.ReadAll(reader); !errors.Is(err, context.Canceled) || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}
