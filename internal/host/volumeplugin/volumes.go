package volumeplugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/quantity"
)

var errNoVolume = errors.New("no such volume")

const (
	// DefaultSize is the size of a volume that is created without one: `docker run
	// -v NAME:/path` gives none.
	DefaultSize = "1Gi"
	// createdAnnotation is on claims that this plugin made. Its value is whether
	// Remove deletes them with their data.
	createdAnnotation = "holdfast.dev/volume-plugin-removes"
	// holdPrefix begins the names of this plugin's holds.
	holdPrefix = "volume-plugin-"
)

// keyOf returns the claim that a volume's name names.
func keyOf(name string) (namespace, claim string, err error) {
	namespace, claim, both := strings.Cut(name, "/")
	if !both {
		namespace, claim = manifest.DefaultNamespace, name
	}
	if namespace == "" || claim == "" || strings.Contains(claim, "/") {
		return "", "", fmt.Errorf("volume name %q is neither CLAIM nor NAMESPACE/CLAIM", name)
	}
	return namespace, claim, nil
}

func nameOf(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Namespace == manifest.DefaultNamespace {
		return pvc.Name
	}
	return store.Key(pvc.Namespace, pvc.Name)
}

// find returns nil for a claim that is not there, or is being deleted.
func (p *Plugin) find(namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	pvc, err := p.stored(namespace, name)
	if pvc != nil && pvc.DeletionTimestamp != nil {
		pvc = nil
	}
	return pvc, err
}

func (p *Plugin) stored(namespace, name string) (pvc *corev1.PersistentVolumeClaim, err error) {
	err = p.Store.View(func(tx *store.Tx) error {
		pvc, err = tx.Claims().Get(store.Key(namespace, name))
		return err
	})
	return pvc, err
}

// findStaying returns the claim of that name, nil without one. It first waits until one
// that is being deleted, as after Remove, is gone.
func (p *Plugin) findStaying(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	kind, _ := store.KindOf("persistentvolumeclaims")
	for {
		pvc, err := p.stored(namespace, name)
		if err != nil || pvc == nil || pvc.DeletionTimestamp == nil {
			return pvc, err
		}
		key := store.KeyOf(pvc)
		if err := p.Host.AwaitGone(ctx, kind, key, pvc.UID); err != nil {
			return nil, fmt.Errorf("claim %s, which was removed, is still being deleted: %w", key, err)
		}
	}
}

// create makes a claim. An existing one is used if the options match it.
func (p *Plugin) create(ctx context.Context, asked request) (answer, error) {
	namespace, name, err := keyOf(asked.Name)
	if err != nil {
		return answer{}, err
	}
	desired, err := claimOf(namespace, name, asked.Opts)
	if err != nil {
		return answer{}, err
	}
	there, err := p.findStaying(ctx, namespace, name)
	if err != nil {
		return answer{}, err
	}
	if there != nil {
		return answer{}, sameClaim(there, desired, asked.Opts)
	}
	if err := p.checkClass(desired.Spec.StorageClassName); err != nil {
		return answer{}, err
	}
	data, err := json.Marshal(desired)
	if err != nil {
		return answer{}, err
	}
	_, err = p.Host.Apply(ctx, []manifest.File{{Name: "volume " + asked.Name, Data: data}}, api.ApplyOptions{})
	return answer{}, err
}

// checkClass refuses a volume that could only wait for its class: the engine
// would find out by a container that does not start.
func (p *Plugin) checkClass(named *string) error {
	var classes []string
	found := false
	err := p.Store.View(func(tx *store.Tx) error {
		all, err := tx.Classes().All()
		for _, class := range all {
			classes = append(classes, class.Name)
			found = found || named != nil && *named == class.Name || named == nil && manifest.IsDefault(class)
		}
		return err
	})
	if err != nil || found {
		return err
	}
	there := "there are none: make one with 'holdfast apply'"
	if len(classes) > 0 {
		there = "there are " + strings.Join(slices.Sorted(slices.Values(classes)), ", ")
	}
	if named != nil {
		return fmt.Errorf("option class=%q: no StorageClass has that name; %s", *named, there)
	}
	return fmt.Errorf("option class is missing, and no StorageClass is the default one (annotation %s: \"true\"); %s",
		manifest.DefaultClassAnnotation, there)
}

func claimOf(namespace, name string, options map[string]string) (*corev1.PersistentVolumeClaim, error) {
	removes, size := true, DefaultSize
	pvc := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	}
	for _, key := range slices.Sorted(maps.Keys(options)) {
		value := options[key]
		switch key {
		case "size":
			size = value
		case "class":
			pvc.Spec.StorageClassName = &value
		case "remove":
			var err error
			if removes, err = strconv.ParseBool(value); err != nil {
				return nil, fmt.Errorf("option remove=%q is neither true nor false", value)
			}
		default:
			return nil, fmt.Errorf("option %q is unknown; there are size, class and remove", key)
		}
	}
	requested, err := quantity.Parse(size)
	if err != nil || requested.Sign() <= 0 {
		return nil, fmt.Errorf("option size=%q is not a size, such as 10Gi", size)
	}
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: requested}
	pvc.Annotations = map[string]string{createdAnnotation: strconv.FormatBool(removes)}
	return pvc, nil
}

// sameClaim refuses options that a claim which is there does not have.
func sameClaim(there, desired *corev1.PersistentVolumeClaim, options map[string]string) error {
	has, wants := there.Spec.Resources.Requests[corev1.ResourceStorage], desired.Spec.Resources.Requests[corev1.ResourceStorage]
	if _, given := options["size"]; given && has.Cmp(wants) != 0 {
		return fmt.Errorf("claim %s is there already, with the size %s: to change it, use 'holdfast apply'",
			store.KeyOf(there), has.String())
	}
	if class := desired.Spec.StorageClassName; class != nil &&
		(there.Spec.StorageClassName == nil || *there.Spec.StorageClassName != *class) {
		return fmt.Errorf("claim %s is there already, and not of class %s", store.KeyOf(there), *class)
	}
	return nil
}

// remove deletes a claim with its data, if this plugin made it and nothing uses
// it: a volume that a user applied is deleted by that user.
func (p *Plugin) remove(ctx context.Context, asked request) (answer, error) {
	namespace, name, err := keyOf(asked.Name)
	if err != nil {
		return answer{}, err
	}
	pvc, err := p.find(namespace, name)
	if err != nil || pvc == nil {
		return answer{}, err // already removed
	}
	key := store.KeyOf(pvc)
	switch pvc.Annotations[createdAnnotation] {
	case "true":
	case "false":
		return answer{}, fmt.Errorf("claim %s was created with remove=false: 'holdfast delete pvc %s -n %s' deletes it with its data", key, name, namespace)
	default:
		return answer{}, fmt.Errorf("claim %s was not made by a container engine: 'holdfast delete pvc %s -n %s' deletes it with its data", key, name, namespace)
	}
	users, err := p.users(pvc)
	if err != nil {
		return answer{}, err
	}
	if len(users) > 0 {
		return answer{}, fmt.Errorf("claim %s is in use by %s: remove the containers that use it; if there are none, 'holdfast release NAME -n %s' ends a hold", key, strings.Join(users, ", "), namespace)
	}
	kind, _ := store.KindOf("persistentvolumeclaims")
	_, err = p.Host.DeleteObject(ctx, kind, key, api.DeleteOptions{UID: string(pvc.UID)})
	if errors.Is(err, api.ErrNotFound) {
		err = nil
	}
	return answer{}, err
}

// users are the pods, holds among them, that use a claim. A hold of this plugin
// that is being released is not: the claim goes after it by itself.
func (p *Plugin) users(pvc *corev1.PersistentVolumeClaim) (names []string, err error) {
	err = p.Store.View(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			released := pod.DeletionTimestamp != nil && strings.HasPrefix(pod.Name, holdPrefix)
			if pod.Namespace == pvc.Namespace && uses(pod, pvc.Name) && !released {
				names = append(names, "pod "+store.KeyOf(pod))
			}
		}
		return err
	})
	return names, err
}

func uses(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// holdName is the name of the first hold of a Mount, and begins the names of
// those after it. An engine's ids can have any characters.
func holdName(volume, id string) string {
	sum := sha256.Sum256([]byte(volume + "\x00" + id))
	return holdPrefix + hex.EncodeToString(sum[:10])
}

// holdsOf returns the holds of one Mount that are in use, at most one unless an earlier
// version made more, and the first free name.
func (p *Plugin) holdsOf(namespace string, asked request) (current []string, free string, err error) {
	first, taken := holdName(asked.Name, asked.ID), map[string]bool{}
	err = p.Store.View(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			if pod.Namespace != namespace || pod.Name != first && !strings.HasPrefix(pod.Name, first+"-") {
				continue
			}
			taken[pod.Name] = true
			if pod.DeletionTimestamp == nil {
				current = append(current, pod.Name)
			}
		}
		return err
	})
	free = first
	for n := 2; taken[free]; n++ {
		free = first + "-" + strconv.Itoa(n)
	}
	return current, free, err
}

func (p *Plugin) mount(ctx context.Context, asked request) (answer, error) {
	namespace, name, err := keyOf(asked.Name)
	if err != nil {
		return answer{}, err
	}
	unlock, err := p.lock(ctx, asked)
	if err != nil {
		return answer{}, err
	}
	defer unlock()
	current, free, err := p.holdsOf(namespace, asked)
	if err != nil {
		return answer{}, err
	}
	held, err := p.Host.Hold(ctx, api.HoldRequest{
		Namespace: namespace, Name: append(current, free)[0], Holder: "container engine, mount " + asked.ID,
		Volumes: []api.HoldVolume{{Name: "volume", Claim: name}}, UntilReboot: true,
	})
	if err != nil {
		return answer{}, err
	}
	mount := held.Volumes["volume"]
	if mount.Block {
		err := fmt.Errorf("claim %s is a block device (volumeMode: Block), which a container engine cannot mount",
			store.Key(namespace, name))
		return answer{}, errors.Join(err, p.release(ctx, namespace, asked))
	}
	return answer{Mountpoint: mount.Path}, nil
}

// lock waits until no other request of the same Mount is in flight.
func (p *Plugin) lock(ctx context.Context, asked request) (unlock func(), err error) {
	return p.mounts.Lock(ctx, fmt.Sprintf("an earlier request of mount %q of volume %q", asked.ID, asked.Name))
}

// release ends the holds of a Mount; one that is not there was ended before.
func (p *Plugin) release(ctx context.Context, namespace string, asked request) error {
	current, _, err := p.holdsOf(namespace, asked)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unmountWait)
	defer cancel()
	var failures []error
	for _, name := range current {
		err := p.Host.Release(ctx, api.ReleaseRequest{Namespace: namespace, Name: name})
		switch {
		case errors.Is(err, api.ErrNotFound):
		case errors.Is(err, api.ErrReleasing):
			p.Logger.Warn("a volume that a container engine does not use any more is not unmounted yet; the host continues",
				"volume", asked.Name, "id", asked.ID, "error", err)
		default:
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// unmount succeeds when the end of the hold is recorded.
func (p *Plugin) unmount(ctx context.Context, asked request) (answer, error) {
	namespace, _, err := keyOf(asked.Name)
	if err != nil {
		return answer{}, err
	}
	unlock, err := p.lock(ctx, asked)
	if err != nil {
		return answer{}, err
	}
	defer unlock()
	return answer{}, p.release(ctx, namespace, asked)
}

func (p *Plugin) path(_ context.Context, asked request) (answer, error) {
	found, err := p.show(asked.Name)
	return answer{Mountpoint: found.Mountpoint}, err
}

func (p *Plugin) get(_ context.Context, asked request) (answer, error) {
	found, err := p.show(asked.Name)
	return answer{Volume: &found}, err
}

func (p *Plugin) show(name string) (volume, error) {
	namespace, claim, err := keyOf(name)
	if err != nil {
		return volume{}, err
	}
	pvc, err := p.find(namespace, claim)
	if err != nil {
		return volume{}, err
	}
	if pvc == nil {
		return volume{}, fmt.Errorf("%w: claim %s does not exist", errNoVolume, store.Key(namespace, claim))
	}
	return p.describe(pvc)
}

// describe describes a claim. Of several mount points it names that of the first hold
// by name.
func (p *Plugin) describe(pvc *corev1.PersistentVolumeClaim) (volume, error) {
	found := volume{
		Name: nameOf(pvc), CreatedAt: pvc.CreationTimestamp.UTC().Format(time.RFC3339),
		Status: map[string]string{"phase": string(pvc.Status.Phase)},
	}
	var holds []string
	err := p.Store.View(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			if pod.Namespace == pvc.Namespace && strings.HasPrefix(pod.Name, holdPrefix) && pod.DeletionTimestamp == nil &&
				uses(pod, pvc.Name) {
				holds = append(holds, pod.Name)
			}
		}
		return err
	})
	if err != nil {
		return found, err
	}
	for _, name := range holds {
		held, ok, err := p.Host.Held(pvc.Namespace, name)
		if err != nil {
			return found, err
		}
		if ok {
			found.Mountpoint = held.Volumes["volume"].Path
			break
		}
	}
	return found, nil
}

func (p *Plugin) list(context.Context, request) (answer, error) {
	var claims []*corev1.PersistentVolumeClaim
	err := p.Store.View(func(tx *store.Tx) (err error) {
		claims, err = tx.Claims().All()
		return err
	})
	if err != nil {
		return answer{}, err
	}
	all := []volume{}
	for _, pvc := range claims {
		if pvc.DeletionTimestamp != nil {
			continue
		}
		found, err := p.describe(pvc)
		if err != nil {
			return answer{}, err
		}
		all = append(all, found)
	}
	return answer{Volumes: all}, nil
}
