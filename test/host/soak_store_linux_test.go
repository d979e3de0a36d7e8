package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// loseStore removes or damages the store of a host that has ended, in a random way. No
// host may start with the remains; with the newest backup restored, the state equals
// the model's.
func (s *soak) loseStore() bool {
	s.t.Helper()
	s.awaitHost() // SIGTERM kills a host that has just begun: it writes no backup
	s.stop()
	path := filepath.Join(s.root, store.FileName)
	ways := []struct {
		name string
		do   func() error
	}{
		{"removed", func() error { return os.Remove(path) }},
		{"emptied", func() error { return os.Truncate(path, 0) }},
		{"never used", func() error { emptyStore(s.t, path+".other"); return os.Rename(path+".other", path) }},
		{"an older one", s.putOlder},
		{"corrupt", s.corrupt},
	}
	way := ways[s.random.IntN(len(ways))]
	if err := way.do(); err != nil {
		s.t.Fatalf("the store is %s: %v", way.name, err)
	}
	if !s.knows() {
		says(s.t, s.fails("host"), "holdfast host")
	} else if way.name != "corrupt" {
		// A host that has no volume yet loses nothing but its classes.
		s.t.Logf("the store was %s, and is accepted", way.name)
	}
	newest := strings.Fields(strings.Split(s.succeeds("host", "backups"), "\n")[1])[0]
	s.succeeds("host", "restore", newest)
	s.start()
	return true
}

func (s *soak) awaitHost() {
	s.always("the host answers", func() error {
		_, err := s.client.Version(s.t.Context())
		return err
	})
}

// knows reports whether the store has the model's objects, so that a host may start.
func (s *soak) knows() bool {
	report, err := store.Check(s.root)
	if err != nil || len(report.Problems) > 0 {
		return false
	}
	return report.Records["persistentvolumeclaims"] >= len(s.claims) && report.Records["pods"] >= len(s.pods) && report.Version >= s.newestBackup()
}

func (s *soak) newestBackup() uint64 {
	s.t.Helper()
	generations, err := store.Generations(s.root, store.Options{})
	if err != nil || len(generations) == 0 {
		s.t.Fatalf("a host that ended left %d backups, %v", len(generations), err)
	}
	return generations[0].Version
}

// putOlder replaces the store by the oldest backup by hand.
func (s *soak) putOlder() error {
	generations, err := store.Generations(s.root, store.Options{})
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(s.root, generations[len(generations)-1].Name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.root, store.FileName), data, 0o600)
}

// corrupt changes a byte in every record of a claim.
func (s *soak) corrupt() error {
	path := filepath.Join(s.root, store.FileName)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.ReplaceAll(string(data), `"volumeName":"pvc-`, `"volumeName":"pvd-`)), 0o600)
}

// fillDisk fills the disk of the host while nothing is mounted, since a thin volume
// needs space, and kills the host. It has to start all the same.
func (s *soak) fillDisk() bool {
	s.t.Helper()
	s.unmountVolumes()
	for name := range s.pods {
		s.always("delete "+name, func() error { return s.tryDelete("pods", name) })
		for _, claim := range s.pods[name].claims {
			s.claims[claim].pods--
		}
		delete(s.pods, name)
	}
	s.until("nothing is mounted", time.Minute, func() bool { return len(s.volumeMounts()) == 0 })
	ballast := filepath.Join(s.root, "ballast")
	fill(s.t, ballast)
	s.kill()
	s.start()
	if err := os.Remove(ballast); err != nil {
		s.t.Fatal(err)
	}
	return true
}

// volumeMounts are the mounts below the root, without the root's own.
func (s *soak) volumeMounts() []string {
	return slices.DeleteFunc(s.mounts(), func(point string) bool { return point == s.root })
}

// intrude runs a pod that tries to reach the host's directory.
func (s *soak) intrude() bool {
	s.t.Helper()
	name, claim := s.name("i"), s.name("ic")
	reader := "reads-" + name
	security := []string{"{}", "{readOnlyRootFilesystem: true}", "{runAsUser: 12345}", "{capabilities: {add: [SYS_NICE]}}"}[s.random.IntN(4)]
	text := intruder(name, claim, security, intrusion(s.root, s.root, s.device()))
	s.always("apply "+name, func() error { return s.tryApply(text) })
	s.until(name+" has ended", time.Minute, func() bool {
		pod := s.pod(name)
		return pod != nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
	})
	s.always("apply "+reader, func() error { return s.tryApply(heldPod(reader, claim)) })
	var pod *corev1.Pod
	s.until(reader+" runs", time.Minute, func() bool { pod = s.running(reader); return pod != nil })
	data, err := os.ReadFile(filepath.Join(filepath.Dir(s.file(pod, claim)), "report"))
	// Another user than root cannot write to the volume.
	if err != nil && !errors.Is(err, os.ErrNotExist) || strings.Contains(string(data), "BROKE") {
		s.t.Fatalf("a pod with securityContext %s: %v\n%s", security, err, data)
	}
	for _, pod := range []string{name, reader} {
		s.always("delete "+pod, func() error { return s.tryDelete("pods", pod) })
	}
	s.always("delete "+claim, func() error { return s.tryDelete("persistentvolumeclaims", claim) })
	s.until(fmt.Sprintf("%s is gone", claim), time.Minute, func() bool {
		_, err := s.client.Get(s.t.Context(), s.kind("persistentvolumeclaims"), "default", claim)
		return errors.Is(err, api.ErrNotFound)
	})
	return true
}
