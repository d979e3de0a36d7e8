//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

const (
	hostPods    = 500  // applied at once
	hostVolumes = 1000 // mounted when memory and the restart are measured
	// hostRest is the time after which the host has returned the memory of a burst.
	hostRest = 15 * time.Second
)

// measureHost compares the host with its driver called directly: it adds records,
// objects and decisions.
func measureHost(ctx context.Context, s settings) (rows []row, err error) {
	h, err := startHost(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	if err := h.apply(ctx, hostClasses); err != nil {
		return nil, err
	}
	latency, err := h.latency(ctx, s.rounds)
	if err != nil {
		return nil, err
	}
	crowd, err := clock(func() error { return h.pods(ctx, "crowd", hostPods) })
	if err != nil {
		return nil, err
	}
	if err := h.pods(ctx, "more", hostVolumes-hostPods); err != nil {
		return nil, err
	}
	time.Sleep(hostRest)
	memory, err := h.memory()
	if err != nil {
		return nil, err
	}
	restart, err := h.restart(ctx)
	if err != nil {
		return nil, err
	}
	time.Sleep(hostRest)
	again, err := h.memory()
	if err != nil {
		return nil, err
	}
	if err := h.clear(ctx); err != nil {
		return nil, err
	}
	directLatency, directCrowd, err := measureDirect(ctx, s)
	if err != nil {
		return nil, err
	}
	return []row{
		times("host: claim and pod applied to block volume in place, no mkfs", latency, "the driver's calls alone, by hand", directLatency, "30 ms"),
		times(fmt.Sprintf("host: %d pods with a new ext4 volume each, applied at once", hostPods), crowd, "the driver's calls alone, 32 at a time", directCrowd, "near 1"),
		{fmt.Sprintf("host: resident memory, %d volumes mounted", hostVolumes), memory, "-", "-", "-", "40 MiB"},
		{fmt.Sprintf("host: restart with %d volumes mounted, until ready", hostVolumes), millis(restart), "-", "-", "-", "2 s"},
		{"host: resident memory after that restart", again, "-", "-", "-", "40 MiB"},
	}, nil
}

const hostClasses = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: local.holdfast.dev
parameters: {csi.storage.k8s.io/fstype: ext4}
`

// hostProcess is a running `holdfast host`.
type hostProcess struct {
	settings settings
	root     string
	command  *exec.Cmd
	client   *api.Client
}

func startHost(ctx context.Context, s settings) (*hostProcess, error) {
	h := &hostProcess{settings: s, root: filepath.Join(s.scratch, "host")}
	h.client = api.DialRoot(h.root)
	_, err := h.start(ctx)
	return h, err
}

// start returns how long it took until the host was ready.
func (h *hostProcess) start(ctx context.Context) (time.Duration, error) {
	h.command = exec.CommandContext(ctx, h.settings.holdfast, "host", "--root", h.root, "--log-level=error")
	h.command.Stderr = os.Stderr
	begun := time.Now()
	if err := h.command.Start(); err != nil {
		return 0, err
	}
	for time.Since(begun) < time.Minute {
		if _, err := h.client.Version(ctx); err == nil {
			return time.Since(begun), nil
		}
		time.Sleep(time.Millisecond)
	}
	return 0, errors.New("the host does not answer")
}

func (h *hostProcess) stop() error {
	defer h.client.Close()
	return errors.Join(h.command.Process.Signal(syscall.SIGTERM), h.command.Wait())
}

// restart kills the host and starts it again.
func (h *hostProcess) restart(ctx context.Context) (time.Duration, error) {
	if err := h.command.Process.Kill(); err != nil {
		return 0, err
	}
	_ = h.command.Wait() // its error reports the signal
	return h.start(ctx)
}

func (h *hostProcess) apply(ctx context.Context, text string) error {
	_, err := h.client.Apply(ctx, []manifest.File{{Name: "bench", Data: []byte(text)}}, api.ApplyOptions{})
	return err
}

// held is a claim, and a pod without containers whose process another program runs.
func held(name, mode, use string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec: {storageClassName: local, accessModes: [ReadWriteOnce], volumeMode: %[2]s, resources: {requests: {storage: 32Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, annotations: {holdfast.dev/holder: bench}}
spec:
  containers: [{name: main, image: none, command: ["true"], %[3]s}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[1]s}}]
---`, name, mode, use)
}

func (h *hostProcess) latency(ctx context.Context, rounds int) (time.Duration, error) {
	return repeat(rounds, func(round int) (time.Duration, error) {
		name := fmt.Sprintf("latency-%d", round)
		text := held(name, "Block", "volumeDevices: [{name: data, devicePath: /dev/x}]")
		return clock(func() error {
			if err := h.apply(ctx, text); err != nil {
				return err
			}
			return h.wait(ctx, map[string]bool{name: true})
		})
	})
}

// pods applies pods with a new volume each in one manifest, and waits for all.
func (h *hostProcess) pods(ctx context.Context, prefix string, number int) error {
	var text strings.Builder
	waiting := map[string]bool{}
	for i := range number {
		name := fmt.Sprintf("%s-%d", prefix, i)
		text.WriteString(held(name, "Filesystem", "volumeMounts: [{name: data, mountPath: /data}]"))
		waiting[name] = true
	}
	if err := h.apply(ctx, text.String()); err != nil {
		return err
	}
	return h.wait(ctx, waiting)
}

var errAll = errors.New("all run")

// wait returns when the pods run.
func (h *hostProcess) wait(ctx context.Context, waiting map[string]bool) error {
	kind, _ := store.KindOf("pods")
	err := h.client.Watch(ctx, kind, api.ListOptions{}, func(event api.WatchEvent) error {
		if pod, ok := event.Object.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning {
			delete(waiting, pod.Name)
		}
		if len(waiting) == 0 {
			return errAll
		}
		return nil
	})
	if errors.Is(err, errAll) {
		return nil
	}
	return errors.Join(err, ctx.Err())
}

// memory is the resident memory of the process.
func (h *hostProcess) memory() (string, error) { return residentMemory(h.command.Process.Pid) }

func residentMemory(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	values := map[string]int{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			values[fields[0]], _ = strconv.Atoi(fields[1])
		}
	}
	return fmt.Sprintf("%.1f MiB (%.1f without the program's file)", float64(values["VmRSS:"])/1024, float64(values["RssAnon:"])/1024), nil
}

// clear deletes everything, and waits until it is gone.
func (h *hostProcess) clear(ctx context.Context) error {
	for _, resource := range []string{"pods", "persistentvolumeclaims"} {
		kind, _ := store.KindOf(resource)
		list, err := h.client.List(ctx, kind, api.ListOptions{})
		if err != nil {
			return err
		}
		for _, object := range list.Items {
			if _, err := h.client.Delete(ctx, kind, object.GetNamespace(), object.GetName(), api.DeleteOptions{}); err != nil {
				return err
			}
		}
		for len(list.Items) > 0 {
			time.Sleep(50 * time.Millisecond)
			if list, err = h.client.List(ctx, kind, api.ListOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureDirect makes the same calls to a separate driver.
func measureDirect(ctx context.Context, s settings) (latency, crowd time.Duration, err error) {
	_, err = with(ctx, s, "direct", 0, func(d *driver) ([]row, error) {
		latency, err = repeat(s.rounds, func(round int) (time.Duration, error) {
			var v *volume
			took, err := clock(func() (err error) {
				if v, err = d.create(ctx, fmt.Sprintf("latency-%d", round), 32<<20, block(), nil, nil); err != nil {
					return err
				}
				return v.up(ctx)
			})
			if err != nil {
				return 0, err
			}
			return took, v.down(ctx)
		})
		if err != nil {
			return nil, err
		}
		volumes := make([]*volume, hostPods)
		if crowd, err = clock(func() error { return d.createAndUse(ctx, volumes) }); err != nil {
			return nil, err
		}
		for _, v := range volumes {
			if err := v.down(ctx); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return latency, crowd, err
}

func (d *driver) createAndUse(ctx context.Context, volumes []*volume) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range volumes {
		group.Go(func() (err error) {
			if volumes[i], err = d.create(ctx, fmt.Sprintf("crowd-%d", i), 32<<20, mounted("ext4"), nil, nil); err != nil {
				return err
			}
			return volumes[i].up(ctx)
		})
	}
	return group.Wait()
}
