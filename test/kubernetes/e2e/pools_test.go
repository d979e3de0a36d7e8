package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pool is the chart's directory of the nodes' volumes.
const pool = "var/lib/holdfast/pool"

// stored lists the contents of all nodes' pools, as NODE/volumes/ID and the like, without
// deleted ones.
func (s *suite) stored(ctx context.Context) ([]string, error) {
	kinds := []string{"volumes", "snapshots", "groups", "trash"}
	if s.cluster.OnMachines() {
		entries := ".*/(" + strings.Join(kinds, "|") + ")/[^/]*"
		return s.onMachines(ctx, "find", "/"+pool, "-regextype", "posix-extended", "-mindepth", "2", "-maxdepth", "2", "-regex", entries)
	}
	var found []string
	for _, node := range s.cluster.Nodes {
		for _, kind := range kinds {
			entries, err := os.ReadDir(filepath.Join(s.cluster.NodeRoot(node), pool, kind))
			if err != nil && !os.IsNotExist(err) {
				return nil, err
			}
			for _, e := range entries {
				found = append(found, filepath.Join(node, kind, e.Name()))
			}
		}
	}
	return found, nil
}

// attached lists the loop devices whose files are on the nodes.
func (s *suite) attached(ctx context.Context) ([]string, error) {
	if s.cluster.OnMachines() {
		return s.onMachines(ctx, "losetup", "--noheadings", "--output", "NAME,BACK-FILE")
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var found []string
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(backing), s.cluster.Dir) {
			found = append(found, fmt.Sprintf("%s of %s", strings.Split(file, "/")[3], strings.TrimSpace(string(backing))))
		}
	}
	return found, err
}

// onMachines has the lines that a program prints on the machines of all nodes.
func (s *suite) onMachines(ctx context.Context, args ...string) ([]string, error) {
	var found []string
	for _, node := range s.cluster.Nodes {
		output, err := s.cluster.OnNode(ctx, node, args...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(output) {
			found = append(found, node+": "+strings.TrimSpace(line))
		}
	}
	return found, nil
}

// objects lists the cluster-wide objects of volumes and snapshots.
func (s *suite) objects(ctx context.Context) ([]string, error) {
	var found []string
	volumes, err := s.api.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		found = append(found, fmt.Sprintf("PersistentVolume %s (%s)", v.Name, v.Status.Phase))
	}
	contents, err := s.snapshots.SnapshotV1().VolumeSnapshotContents().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, v := range contents.Items {
		found = append(found, "VolumeSnapshotContent "+v.Name)
	}
	return found, nil
}

// empty returns an error while a volume or snapshot exists: in the API, in a pool, or as
// a loop device.
func (s *suite) empty(ctx context.Context) error {
	objects, err := s.objects(ctx)
	if err != nil {
		return err
	}
	entries, err := s.stored(ctx)
	if err != nil {
		return err
	}
	devices, err := s.attached(ctx)
	if err != nil {
		return err
	}
	if left := append(append(objects, entries...), devices...); len(left) > 0 {
		return fmt.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
	return nil
}

func (s *suite) expectEmptyPools(t *testing.T) {
	t.Helper()
	if err := wait(t.Context(), s.timeout, func() error { return s.empty(t.Context()) }); err != nil {
		t.Errorf("after all objects were deleted: %v\n%s", err, s.deployment.Report(t.Context()))
	}
}
