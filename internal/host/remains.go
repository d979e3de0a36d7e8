package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// ErrStoreLost reports that the store lacks the objects of an earlier host whose pods
// or volumes exist.
var ErrStoreLost = errors.New("the store of the host is lost")

// openStore opens the store, and rejects one that cannot belong to the content of the
// root directory: with an empty one, the host would end the pods that run, and create
// new, empty volumes for claims that have a volume.
func openStore(directory string, options Options) (*store.Store, error) {
	paths := root{claim.Paths{Root: directory}, options.Machine.Mounts}
	opened, err := store.OpenWith(directory, store.Options{
		SecretsKey: options.SecretsKey, Failpoints: options.Failpoints,
		New: func() error { return refuseNew(paths, options) },
	})
	if err != nil {
		return nil, err
	}
	if err := refuseEmptied(opened, paths); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// refuseNew fails if a new store would replace one that was lost.
func refuseNew(paths root, options Options) error {
	found, err := inUse(paths)
	if err != nil {
		return err
	}
	units, err := os.ReadDir(filepath.Join(paths.Root, "supervise"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, unit := range units {
		if name, ok := strings.CutSuffix(unit.Name(), ".json"); ok {
			found = append(found, "the driver "+name+" was started here")
		}
	}
	for _, builtin := range options.Builtins {
		if builtin.Remains == nil {
			continue
		}
		remains, err := builtin.Remains(paths.Root)
		if err != nil {
			return fmt.Errorf("find the volumes of an earlier host with the driver %s: %w", builtin.Name, err)
		}
		if remains != "" {
			found = append(found, remains)
		}
	}
	generations, err := store.Generations(paths.Root, store.Options{SecretsKey: options.SecretsKey})
	if err != nil {
		return err
	}
	for _, generation := range generations {
		if !generation.Empty() {
			found = append(found, "there is a backup of the store, "+generation.Name)
			break
		}
	}
	return lost(paths, "does not exist or is empty", found)
}

// refuseEmptied fails if the store has no volume, while some are in use.
func refuseEmptied(opened *store.Store, paths root) error {
	holdsNothing := false
	if err := opened.View(func(tx *store.Tx) error {
		holdsNothing = tx.HoldsNothing() && !tx.WasReset()
		return nil
	}); err != nil || !holdsNothing {
		return err
	}
	found, err := inUse(paths)
	if err != nil {
		return err
	}
	return lost(paths, "knows no volume and no pod", found)
}

// lost is the error for pods or volumes that the store lacks.
func lost(paths root, state string, found []string) error {
	if len(found) == 0 {
		return nil
	}
	const shown = 5
	if more := len(found) - shown; more > 0 {
		found = append(found[:shown:shown], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("%w: %s %s, but an earlier host left: %s. Restore a backup with 'holdfast host restore NAME' "+
		"('holdfast host backups' lists them); or, to give up what was left, make an empty store with 'holdfast host init'",
		ErrStoreLost, filepath.Join(paths.Root, store.FileName), state, strings.Join(found, "; "))
}

// inUse describes pods, mounts and staging directories of an earlier host, which
// has a record of each of them in its store for as long as it is there.
func inUse(paths root) ([]string, error) {
	pods, err := recordedPods(paths.Paths)
	if err != nil {
		return nil, err
	}
	mounts, err := paths.mounts.Below(paths.Root)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	found := pods
	published, staged := filepath.Dir(paths.Pod("x")), filepath.Dir(filepath.Dir(filepath.Dir(paths.Staging("x", "y"))))
	for _, path := range mounts {
		if strings.HasPrefix(path, published+"/") || strings.HasPrefix(path, staged+"/") {
			found = append(found, "a volume is mounted at "+path)
		}
	}
	return found, nil
}

// recordedPods describes the pods that have a record of their run.
func recordedPods(paths claim.Paths) (found []string, err error) {
	records, err := filepath.Glob(paths.PodRecord("*"))
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		var pod corev1.Pod
		data, err := os.ReadFile(record)
		if err == nil {
			err = json.Unmarshal(data, &pod)
		}
		if err != nil || pod.Name == "" {
			found = append(found, "a pod whose record is "+record)
			continue
		}
		found = append(found, "the pod "+store.KeyOf(&pod))
	}
	return found, nil
}
