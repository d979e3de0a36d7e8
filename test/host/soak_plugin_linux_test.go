package host_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// engineVolume is a volume of the volume plugin as a container engine counts it.
type engineVolume struct {
	content string
	// mounts are the mount points by the IDs whose Mount was answered.
	mounts map[string]string
	// lost are the IDs whose last request was a Mount without an answer: the engine
	// counts no use, and the host may have answered, so that a hold may stay.
	lost map[string]bool
}

// operations of a container engine, each with a host that may be killed during it.
func (s *soak) createVolume() bool {
	if len(s.volumes) >= 5 {
		return false
	}
	name := s.name("v")
	body := fmt.Sprintf(`{"Name":%q,"Opts":{"size":"16Mi","class":%q}}`, name, s.class())
	s.volumes[name] = &engineVolume{mounts: map[string]string{}, lost: map[string]bool{}}
	s.always("create "+name, func() error { return s.asked("Create", body) })
	return true
}

// asked sends one request whose answer has no content.
func (s *soak) asked(path, body string) error {
	answer, _, err := s.engine.try("/VolumeDriver."+path, body)
	if err == nil && answer.Err != "" {
		err = errors.New(answer.Err)
	}
	return err
}

func mountOf(volume, id string) string { return fmt.Sprintf(`{"Name":%q,"ID":%q}`, volume, id) }

func (s *soak) mountVolume() bool {
	name, found := one(s, s.volumes, anyOne)
	if !found {
		return false
	}
	volume, id := s.volumes[name], fmt.Sprint("id", s.random.IntN(3))
	content := fmt.Sprintf("%s %d", name, s.random.Uint64())
	answer, _, err := s.engine.try("/VolumeDriver.Mount", mountOf(name, id))
	switch before := volume.mounts[id]; {
	case (err != nil || answer.Err != "") && before == "":
		volume.lost[id] = true
		return true
	case err != nil || answer.Err != "":
		return true // the existing use stays
	case before != "" && before != answer.Mountpoint:
		s.t.Fatalf("mount %s of %s is at %s, and was at %s", id, name, answer.Mountpoint, before)
	}
	delete(volume.lost, id)
	volume.mounts[id] = answer.Mountpoint
	if err := writeSynced(filepath.Join(answer.Mountpoint, "content"), content); err != nil {
		s.t.Fatalf("mount %s of %s was answered, and cannot be written: %v\n%s", id, name, err, s.tail())
	}
	volume.content = content
	return true
}

func (s *soak) unmountVolume() bool {
	name, found := one(s, s.volumes, func(_ string, v *engineVolume) bool { return len(v.mounts) > 0 })
	if !found {
		return false
	}
	ids := slices.Sorted(maps.Keys(s.volumes[name].mounts))
	s.unmountOne(name, ids[s.random.IntN(len(ids))])
	return true
}

// unmountOne repeats an Unmount until it is answered.
func (s *soak) unmountOne(name, id string) {
	s.always("unmount "+id+" of "+name, func() error { return s.asked("Unmount", mountOf(name, id)) })
	delete(s.volumes[name].mounts, id)
	delete(s.volumes[name].lost, id)
}

func (s *soak) removeVolume() bool {
	name, found := one(s, s.volumes, func(_ string, v *engineVolume) bool { return len(v.mounts) == 0 })
	if !found {
		return false
	}
	s.endLost(name)
	s.always("remove "+name, func() error { return s.asked("Remove", mountOf(name, "")) })
	delete(s.volumes, name)
	return true
}

// awaitAnswers waits until the host has ended the holds that it did not answer.
func (s *soak) awaitAnswers(name string) {
	s.until("the holds of "+name+" that were not answered are ended", time.Minute, func() bool {
		return !slices.ContainsFunc(s.holdsOf(name), func(pod *corev1.Pod) bool {
			return strings.Contains(pod.Annotations["holdfast.dev/lease"], `"unanswered":true`)
		})
	})
}

// endLost sends an Unmount for each Mount without an answer, as an operator does before a
// volume is removed.
func (s *soak) endLost(name string) {
	for id := range maps.Clone(s.volumes[name].lost) {
		s.unmountOne(name, id)
	}
}

// wantHolds checks that each mount that the engine counts has one hold, and that other
// holds do not exist, except at most one of each ID whose last Mount has no answer. It
// returns the holds of such IDs.
func (s *soak) wantHolds(name string, volume *engineVolume) (lost []*corev1.Pod) {
	s.t.Helper()
	s.awaitAnswers(name)
	holds := map[string]int{}
	for _, pod := range s.holdsOf(name) {
		_, id, _ := strings.Cut(pod.Annotations["holdfast.dev/holder"], "mount ")
		if holds[id]++; volume.mounts[id] == "" {
			lost = append(lost, pod)
		}
	}
	for id, count := range holds {
		if count > 1 || volume.mounts[id] == "" && !volume.lost[id] {
			s.t.Fatalf("mount %s of %s has %d holds; the engine counts the mounts %v and has no answer for %v\n%s", id, name, count, volume.mounts, volume.lost, s.tail())
		}
	}
	for id := range volume.mounts {
		if holds[id] == 0 {
			s.t.Fatalf("mount %s of %s has no hold\n%s", id, name, s.tail())
		}
	}
	return lost
}

// holdsOf are the holds of the volume plugin that use a claim.
func (s *soak) holdsOf(claim string) (holds []*corev1.Pod) {
	s.always("list the holds of "+claim, func() error {
		holds = nil
		list, err := s.client.List(s.t.Context(), s.kind("pods"), api.ListOptions{})
		if err != nil {
			return err
		}
		for _, object := range list.Items {
			pod, ok := object.(*corev1.Pod)
			if ok && pod.DeletionTimestamp == nil && strings.HasPrefix(pod.Name, "volume-plugin-") && pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName == claim {
				holds = append(holds, pod)
			}
		}
		return nil
	})
	return holds
}

// verifyVolumes compares the engine's count of each volume with the host's holds,
// and the content of each mount. It returns the mount points, and the directories
// of holds that may be mounted because a Mount has no answer.
func (s *soak) verifyVolumes() (mounted, lost []string) {
	s.t.Helper()
	for name, volume := range s.volumes {
		for _, pod := range s.wantHolds(name, volume) {
			lost = append(lost, filepath.Join(s.root, "pods", string(pod.UID))+"/")
		}
		for id, path := range volume.mounts {
			// After a kill, the host publishes again the volumes that a driver lost.
			var answer said
			s.always("mount "+id+" of "+name+" again", func() (err error) {
				if answer, _, err = s.engine.try("/VolumeDriver.Mount", mountOf(name, id)); err == nil && answer.Err != "" {
					err = errors.New(answer.Err)
				}
				return err
			})
			data, err := os.ReadFile(filepath.Join(path, "content"))
			if err != nil || answer.Mountpoint != path || string(data) != volume.content {
				s.t.Fatalf("mount %s of %s is at %s and has %q, %v; want %q at %s\n%s", id, name, answer.Mountpoint, data, err, volume.content, path, s.tail())
			}
			mounted = append(mounted, path)
		}
	}
	return mounted, lost
}

// unmountVolumes ends every use that the engine counts.
func (s *soak) unmountVolumes() {
	for name, volume := range s.volumes {
		s.endLost(name)
		for id := range maps.Clone(volume.mounts) {
			s.unmountOne(name, id)
		}
	}
}

func (s *soak) removeVolumes() {
	s.unmountVolumes()
	for name := range s.volumes {
		s.always("remove "+name, func() error { return s.asked("Remove", mountOf(name, "")) })
	}
	clear(s.volumes)
}
