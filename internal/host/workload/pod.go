package workload

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
)

// defaultPath is the PATH of a container whose image names none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// defaultGrace is Kubernetes' default of terminationGracePeriodSeconds.
const defaultGrace = 30 * time.Second

// Volume is a pod's volume on this machine.
type Volume struct {
	// Path is a directory, or a block device node.
	Path     string
	Block    bool
	ReadOnly bool
}

// Pod lists the containers of a pod: the init containers run one after another, then
// the others at once.
type Pod struct {
	Init, Main []Container
}

// Sources are the objects that containers refer to, in addition to the pod.
type Sources struct {
	// Volumes are the mounted volumes, by their names in the pod.
	Volumes map[string]Volume
	// Values are those of the Secrets and ConfigMaps.
	Values Values
	// Node is this machine's name.
	Node string
}

// FromPod translates a pod. Fields without a meaning here are the caller's to
// refuse or to report.
func FromPod(pod *corev1.Pod, sources Sources) (Pod, error) {
	var translated Pod
	for i := range pod.Spec.InitContainers {
		container, err := FromContainer(pod, &pod.Spec.InitContainers[i], sources)
		if err != nil {
			return Pod{}, err
		}
		translated.Init = append(translated.Init, container)
	}
	for i := range pod.Spec.Containers {
		container, err := FromContainer(pod, &pod.Spec.Containers[i], sources)
		if err != nil {
			return Pod{}, err
		}
		translated.Main = append(translated.Main, container)
	}
	return translated, nil
}

// FromContainer translates one container. The error is a MissingError if it refers to a
// Secret or a ConfigMap that does not exist.
func FromContainer(pod *corev1.Pod, c *corev1.Container, sources Sources) (Container, error) {
	wrap := func(err error) (Container, error) { return Container{}, fmt.Errorf("container %q: %w", c.Name, err) }
	container, values, err := withoutMounts(pod, c, sources)
	if err != nil {
		return wrap(err)
	}
	if len(c.Command) == 0 {
		return wrap(errors.New("command: needed here, because the image and its command are not used"))
	}
	for _, word := range slices.Concat(c.Command, c.Args) {
		container.Command = append(container.Command, expand(word, values))
	}
	if err := setMounts(&container, pod, c, sources); err != nil {
		return wrap(err)
	}
	return container, nil
}

// ForExec translates what a command in a container that runs has of it: user, rights,
// environment and directory. The environment has the values that the Secrets and
// ConfigMaps have now, as a start of the container would.
func ForExec(pod *corev1.Pod, c *corev1.Container, command []string, sources Sources) (Container, error) {
	container, _, err := withoutMounts(pod, c, sources)
	if err != nil {
		return Container{}, fmt.Errorf("container %q: %w", c.Name, err)
	}
	container.Command = command
	return container, nil
}

// ForCopy translates what a copy needs: user, rights and directory.
func ForCopy(pod *corev1.Pod, c *corev1.Container) (Container, error) {
	container := newContainer(pod, c)
	if err := setUser(&container, pod, c); err != nil {
		return Container{}, fmt.Errorf("container %q: %w", c.Name, err)
	}
	return container, nil
}

// newContainer has the name, the directory and the grace period.
func newContainer(pod *corev1.Pod, c *corev1.Container) Container {
	container := Container{Name: c.Name, Directory: c.WorkingDir, GracePeriod: defaultGrace}
	if container.Directory == "" {
		container.Directory = "/"
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		container.GracePeriod = time.Duration(*grace) * time.Second
	}
	return container
}

// withoutMounts has everything but the command and the mounts, and the variables.
func withoutMounts(pod *corev1.Pod, c *corev1.Container, sources Sources) (Container, map[string]string, error) {
	container := newContainer(pod, c)
	if err := setUser(&container, pod, c); err != nil {
		return Container{}, nil, err
	}
	values, err := setEnvironment(&container, pod, c, sources)
	return container, values, err
}

// setUser takes the container's own security context over the pod's.
func setUser(c *Container, pod *corev1.Pod, source *corev1.Container) error {
	shared, own := pod.Spec.SecurityContext, source.SecurityContext
	if shared == nil {
		shared = &corev1.PodSecurityContext{}
	}
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	c.UID = id(shared.RunAsUser, own.RunAsUser)
	c.GID = id(shared.RunAsGroup, own.RunAsGroup)
	for _, group := range shared.SupplementalGroups {
		c.Groups = append(c.Groups, uint32(group))
	}
	if shared.FSGroup != nil {
		c.Groups = append(c.Groups, uint32(*shared.FSGroup))
	}
	if isSet(shared.RunAsNonRoot, own.RunAsNonRoot) && c.UID == 0 {
		return errors.New("securityContext.runAsNonRoot is true, but runAsUser names no other user than root")
	}
	c.Privileged = own.Privileged != nil && *own.Privileged
	c.NoNewPrivs = own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation
	c.ReadOnlyRoot = own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem
	if own.Capabilities != nil {
		for _, name := range own.Capabilities.Drop {
			c.DropAll = c.DropAll || strings.EqualFold(string(name), "ALL")
			c.DropCaps = append(c.DropCaps, capabilityName(name))
		}
		for _, name := range own.Capabilities.Add {
			c.KeepCaps = append(c.KeepCaps, capabilityName(name))
		}
	}
	return nil
}

func capabilityName(name corev1.Capability) string {
	return strings.TrimPrefix(strings.ToUpper(string(name)), "CAP_")
}

func id(shared, own *int64) uint32 {
	switch {
	case own != nil:
		return uint32(*own)
	case shared != nil:
		return uint32(*shared)
	}
	return 0
}

func isSet(shared, own *bool) bool {
	if own != nil {
		return *own
	}
	return shared != nil && *shared
}

// setEnvironment returns the variables for expansion. Nothing of the caller's
// own environment is passed on, as in a container.
func setEnvironment(
	c *Container, pod *corev1.Pod, source *corev1.Container, sources Sources,
) (map[string]string, error) {
	home := "/"
	if c.UID == 0 {
		home = "/root"
	}
	hostname := pod.Spec.Hostname
	if hostname == "" {
		hostname = pod.Name
	}
	names := []string{"PATH", "HOME", "HOSTNAME"}
	values := map[string]string{"PATH": defaultPath, "HOME": home, "HOSTNAME": hostname}
	set := func(name, value string) {
		if _, known := values[name]; !known {
			names = append(names, name)
		}
		values[name] = value
	}
	from, objects, err := sources.Values.variables(pod.Namespace, source.EnvFrom)
	if err != nil {
		return nil, err
	}
	for _, name := range from {
		set(name, objects[name])
	}
	for i, variable := range source.Env {
		value := expand(variable.Value, values)
		if variable.ValueFrom != nil {
			found := true
			var err error
			if keys := podvalues.OfVariable(variable.ValueFrom); len(keys) > 0 {
				value, found, err = sources.Values.variable(pod.Namespace, keys[0])
			} else {
				value, err = fieldValue(pod, variable.ValueFrom, sources.Node)
			}
			if err != nil {
				return nil, fmt.Errorf("env[%d] (%s): %w", i, variable.Name, err)
			}
			if !found {
				continue
			}
		}
		set(variable.Name, value)
	}
	for _, name := range names {
		c.Env = append(c.Env, name+"="+values[name])
	}
	return values, nil
}

// fieldValue serves the fields of the downward API that have a meaning here.
func fieldValue(pod *corev1.Pod, source *corev1.EnvVarSource, node string) (string, error) {
	if source.FieldRef == nil {
		return "", errors.New("valueFrom: only fieldRef, secretKeyRef and configMapKeyRef are supported")
	}
	field := source.FieldRef.FieldPath
	if name, subscript, found := strings.Cut(field, "['"); found {
		key := strings.TrimSuffix(subscript, "']")
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch field {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return node, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	}
	return "", fmt.Errorf("valueFrom.fieldRef.fieldPath: %q is not supported", field)
}

func setMounts(c *Container, pod *corev1.Pod, source *corev1.Container, sources Sources) error {
	for i, mount := range source.VolumeMounts {
		if source, found := volumeOfValues(pod, mount.Name); found {
			memory, err := sources.Values.mount(pod, source, mount)
			if err != nil {
				return fmt.Errorf("volumeMounts[%d]: volume %q: %w", i, mount.Name, err)
			}
			c.Mounts = append(c.Mounts, memory)
			continue
		}
		volume, found := sources.Volumes[mount.Name]
		switch {
		case !found:
			return fmt.Errorf("volumeMounts[%d].name: the pod has no volume %q", i, mount.Name)
		case volume.Block:
			return fmt.Errorf("volumeMounts[%d]: volume %q is a block device; use volumeDevices", i, mount.Name)
		}
		c.Mounts = append(c.Mounts, Mount{
			Source: volume.Path, SubPath: mount.SubPath, Target: path.Clean(mount.MountPath),
			ReadOnly: mount.ReadOnly || volume.ReadOnly,
		})
	}
	for i, device := range source.VolumeDevices {
		volume, found := sources.Volumes[device.Name]
		switch {
		case !found:
			return fmt.Errorf("volumeDevices[%d].name: the pod has no volume %q", i, device.Name)
		case !volume.Block:
			return fmt.Errorf("volumeDevices[%d]: volume %q is a filesystem; use volumeMounts", i, device.Name)
		}
		c.Mounts = append(c.Mounts, Mount{Source: volume.Path, Target: path.Clean(device.DevicePath), Device: true})
	}
	return nil
}

// volumeOfValues finds a volume of Secrets or ConfigMaps; false for another one.
func volumeOfValues(pod *corev1.Pod, name string) (podvalues.Volume, bool) {
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.Name == name {
			return podvalues.OfVolume(volume)
		}
	}
	return podvalues.Volume{}, false
}
