package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumeplugin"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

// holdDirectory is a directory for the caller's own files, below the pod's
// directory. The pod controller removes it with the rest.
const holdDirectory = "run/holder"

// Hold mounts volumes for a caller that is not a pod of this host. A Pod object
// without running containers represents the hold: it passes the same checks and
// policies as any pod, and the pod controller mounts its volumes, also after a
// reboot. If the volumes are not mounted before the context ends, the hold is released.
func (h *Host) Hold(ctx context.Context, request api.HoldRequest) (api.HoldAnswer, error) {
	if request.TimeoutSeconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(request.TimeoutSeconds)*time.Second)
		defer cancel()
	}
	desired, err := h.holdPod(request)
	if err != nil {
		return api.HoldAnswer{}, refuse(api.ErrInvalid, err)
	}
	key := store.KeyOf(desired)
	hold, err := h.makeHold(ctx, desired)
	if err != nil {
		return api.HoldAnswer{}, err
	}
	answer, err := h.awaitHold(ctx, key, hold.uid, request.Once)
	answer.Warnings = hold.warnings
	if err == nil {
		err = h.recordAnswer(key, hold.uid)
	}
	if err == nil || !hold.made {
		return answer, err
	}
	undo := h.undoHold(context.WithoutCancel(ctx), request.Once, api.ReleaseRequest{
		Namespace: desired.Namespace, Name: desired.Name, UID: string(hold.uid),
	})
	if errors.Is(undo, api.ErrNotFound) {
		undo = nil
	}
	return api.HoldAnswer{}, errors.Join(err, undo)
}

// madeHold is the object of a hold, whether this call made it, and the policy's
// warnings.
type madeHold struct {
	uid      types.UID
	made     bool
	warnings []string
}

// makeHold creates the object of a hold, unless the same one exists. It waits for
// the end of a hold of that name that is being released.
func (h *Host) makeHold(ctx context.Context, desired *corev1.Pod) (madeHold, error) {
	key := store.KeyOf(desired)
	for {
		hold, going, err := h.tryHold(ctx, desired)
		if err != nil || going == "" {
			return hold, err
		}
		if err := h.AwaitGone(ctx, podKind(), key, going); err != nil {
			return madeHold{}, fmt.Errorf("hold %s: an earlier one of this name is still being released: %w", key, err)
		}
	}
}

// tryHold is the part of makeHold under the lock. going is the uid of a hold that
// must be gone first.
func (h *Host) tryHold(ctx context.Context, desired *corev1.Pod) (hold madeHold, going types.UID, err error) {
	key := store.KeyOf(desired)
	unlock, err := h.holds.Lock(ctx, key)
	if err != nil {
		return madeHold{}, "", err
	}
	defer unlock()
	there, err := h.podOf(key)
	switch {
	case err != nil:
		return madeHold{}, "", err
	case there != nil && there.DeletionTimestamp != nil:
		return madeHold{}, there.UID, nil
	case there != nil:
		return madeHold{uid: there.UID}, "", sameHold(there, desired)
	}
	if err := h.checkHold(desired); err != nil {
		return madeHold{}, "", err
	}
	data, err := json.Marshal(desired)
	if err != nil {
		return madeHold{}, "", err
	}
	applied, err := h.applyFiles([]manifest.File{{Name: "hold " + key, Data: data}}, api.ApplyOptions{})
	if err != nil {
		return madeHold{}, "", err
	}
	if there, err = h.podOf(key); err != nil {
		return madeHold{}, "", err
	}
	if there == nil {
		return madeHold{}, "", fmt.Errorf("%w: hold %s was deleted as soon as it was made", api.ErrConflict, key)
	}
	return madeHold{uid: there.UID, made: true, warnings: applied.advice}, "", nil
}

func (h *Host) podOf(key string) (pod *corev1.Pod, err error) {
	err = h.store.View(func(tx *store.Tx) error {
		pod, err = tx.Pods().Get(key)
		return err
	})
	return pod, err
}

// Release ends a hold and returns when it is removed completely. If the context ends
// earlier, the release continues, and the error is api.ErrReleasing.
func (h *Host) Release(ctx context.Context, request api.ReleaseRequest) error {
	key := store.Key(request.Namespace, request.Name)
	pod, err := h.podOf(key)
	switch {
	case err != nil:
		return err
	case pod == nil || request.UID != "" && string(pod.UID) != request.UID:
		return refuse(api.ErrNotFound, fmt.Errorf("hold %s does not exist", key))
	case pod.Annotations[pods.HolderAnnotation] == "":
		return refuse(api.ErrConflict, fmt.Errorf("%s is a pod that this host runs, and no hold: 'holdfast delete pod' ends it", key))
	}
	request.UID = string(pod.UID)
	if err := h.endHold(ctx, request); err != nil {
		return err
	}
	if err := h.AwaitGone(ctx, podKind(), key, pod.UID); err != nil {
		return fmt.Errorf("hold %s: %w: %w", key, api.ErrReleasing, err)
	}
	return nil
}

// endHold begins the end of a hold.
func (h *Host) endHold(ctx context.Context, request api.ReleaseRequest) error {
	_, err := h.DeleteObject(ctx, podKind(), store.Key(request.Namespace, request.Name),
		api.DeleteOptions{UID: request.UID})
	return err
}

// awaitHold waits until the volumes are mounted. With once, it does not wait until
// the object's status says so, because the caller runs the pod and no other process
// reads the object; and it returns a failure that repeating alone does not mend.
func (h *Host) awaitHold(
	ctx context.Context, key string, uid types.UID, once bool,
) (answer api.HoldAnswer, err error) {
	queue := h.set.Queue(podKind().Resource)
	var failed error
	err = h.set.Await(ctx, func() bool {
		var ready bool
		if answer, ready, failed = h.holdAnswer(key, uid, once); ready || failed != nil {
			return true
		}
		if state := queue.State(key); once && state.LastError != nil && !state.Running && !volumes.Repeats(state.LastError) {
			failed = state.LastError
		}
		return failed != nil
	})
	if err != nil {
		return answer, fmt.Errorf("hold %s: its volumes are not in place: %s: %w", key, h.whyNot(podKind(), key), err)
	}
	return answer, failed
}

// holdAnswer is the answer of a hold if it is ready: the volumes are mounted and,
// except with once, its object says so.
func (h *Host) holdAnswer(key string, uid types.UID, once bool) (answer api.HoldAnswer, ready bool, err error) {
	pod, err := h.podOf(key)
	if err != nil {
		return answer, false, err
	}
	if pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil {
		return answer, false, refuse(api.ErrConflict,
			fmt.Errorf("hold %s was released before its volumes were in place", key))
	}
	mounted, ready := h.pods.Mounted(uid)
	if !ready || !once && pod.Status.Phase != corev1.PodRunning {
		return answer, false, nil
	}
	answer, err = h.answerOf(pod, mounted)
	return answer, err == nil, err
}

// undoTimeout bounds how long the caller of a hold that failed waits for its release.
const undoTimeout = 30 * time.Second

// undoHold begins the release of a hold that failed. With once, the caller may be
// the last one of this host: then it also waits until the release is complete.
func (h *Host) undoHold(ctx context.Context, once bool, request api.ReleaseRequest) error {
	if !once {
		return h.endHold(ctx, request)
	}
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	return h.Release(ctx, request)
}

func (h *Host) answerOf(pod *corev1.Pod, mounted map[string]volumes.Mounted) (api.HoldAnswer, error) {
	directory := filepath.Join(h.paths.Pod(pod.UID), filepath.FromSlash(holdDirectory))
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return api.HoldAnswer{}, fmt.Errorf("make the directory of the hold: %w", err)
	}
	answer := api.HoldAnswer{Pod: store.KeyOf(pod), UID: string(pod.UID), Volumes: map[string]api.HoldMount{},
		Directory: directory}
	for name, mount := range mounted {
		answer.Volumes[name] = api.HoldMount{Path: mount.Path, Block: mount.Block, ReadOnly: mount.ReadOnly}
	}
	return answer, nil
}

// AwaitGone waits until an object is gone. The error says why it is not.
func (h *Host) AwaitGone(ctx context.Context, kind store.Kind, key string, uid types.UID) error {
	err := h.follow(ctx, kind, key, func(object store.Object) (bool, error) {
		return object == nil || object.GetUID() != uid, nil
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%s: %w", h.whyNot(kind, key), err)
	}
	return err
}

// follow calls done with an object, nil if it is gone: now, and after each of its
// changes until done reports true.
func (h *Host) follow(ctx context.Context, kind store.Kind, key string, done func(store.Object) (bool, error)) error {
	for {
		var version uint64
		var object store.Object
		err := h.store.View(func(tx *store.Tx) (err error) {
			version = tx.Version()
			object, err = tx.Objects(kind).Get(key)
			return err
		})
		if err != nil {
			return err
		}
		if over, err := done(object); over || err != nil {
			return err
		}
		watching := h.store.Watch(version)
		for changed := false; !changed; {
			changes, err := watching.Next(ctx)
			if errors.Is(err, store.ErrExpired) {
				break
			}
			if err != nil {
				return err
			}
			changed = slices.ContainsFunc(changes, func(c store.Change) bool { return c.Kind.Kind == kind.Kind && c.Key == key })
		}
	}
}

// whyNot returns why a pod or a claim waits, or its last error; for a pod, its claims'
// too.
func (h *Host) whyNot(kind store.Kind, key string) string {
	reason := h.volumes.Reason(kind.Resource, key)
	if kind.Kind == "Pod" {
		reason = h.whyNotPod(kind, key)
	}
	return cmp.Or(reason, "the driver has not answered yet")
}

func (h *Host) whyNotPod(kind store.Kind, key string) string {
	pod, err := h.podOf(key)
	if err != nil || pod == nil {
		return "nothing is known of it"
	}
	var reasons []string
	for _, state := range h.State(kind, key) {
		reasons = append(reasons, state.LastError)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			reasons = append(reasons, condition.Message)
		}
	}
	reasons = []string{cmp.Or(reasons...)} // the others repeat it
	for _, claim := range volumes.ClaimsOf(pod) {
		label := "claim " + claim + ": "
		if reason := h.volumes.Reason(claimKind().Resource, claim); reason != "" {
			reasons = append(reasons, label+strings.TrimPrefix(reason, label))
		}
	}
	return strings.Join(slices.DeleteFunc(reasons, func(reason string) bool { return reason == "" }), "; ")
}

func podKind() store.Kind { kind, _ := store.KindOf("pods"); return kind }

func claimKind() store.Kind { kind, _ := store.KindOf("persistentvolumeclaims"); return kind }

// Held is the answer of a hold whose volumes are mounted; false if there is none.
func (h *Host) Held(namespace, name string) (api.HoldAnswer, bool, error) {
	pod, err := h.podOf(store.Key(namespace, name))
	if err != nil || pod == nil || pod.DeletionTimestamp != nil || pod.Annotations[pods.HolderAnnotation] == "" {
		return api.HoldAnswer{}, false, err
	}
	mounted, all := h.pods.Mounted(pod.UID)
	if !all {
		return api.HoldAnswer{}, false, nil
	}
	answer, err := h.answerOf(pod, mounted)
	return answer, true, err
}

// pluginSocket is the socket of the volume plugin; nil if none is served.
type pluginSocket struct {
	host     *Host
	listener net.Listener
}

func (h *Host) listenPlugin(ctx context.Context, options DaemonOptions) (*pluginSocket, error) {
	if options.PluginListener != nil {
		return &pluginSocket{host: h, listener: options.PluginListener}, nil
	}
	if options.VolumePlugin == "" {
		return nil, nil
	}
	listener, err := unixsocket.Listen(ctx, options.VolumePlugin)
	if err != nil {
		return nil, fmt.Errorf("the socket of the volume plugin: %w", err)
	}
	return &pluginSocket{host: h, listener: listener}, nil
}

func (p *pluginSocket) close() error {
	if p == nil {
		return nil
	}
	return p.listener.Close()
}

// serve serves the volume plugin for container engines, if a socket is given.
func (p *pluginSocket) serve(ctx context.Context) error {
	if p == nil {
		return nil
	}
	logger := p.host.options.Logger.With("component", "volume-plugin")
	plugin := &volumeplugin.Plugin{Host: p.host, Store: p.host.store, Logger: logger}
	return plugin.Serve(ctx, p.listener)
}
