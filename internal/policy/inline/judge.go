package inline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Object is a pod, or an object with a template of pods.
type Object struct {
	metav1.ObjectMeta
	Kind string // such as Pod, Deployment
	Spec *corev1.PodSpec
}

// OfPod makes an Object of a pod.
func OfPod(pod *corev1.Pod) Object {
	return Object{ObjectMeta: pod.ObjectMeta, Kind: "Pod", Spec: &pod.Spec}
}

func (o Object) isPod() bool { return o.Kind == "Pod" }

// subject is the object's name in messages.
func (o Object) subject() string {
	name := o.Name
	if name == "" {
		name = o.GenerateName
	}
	return o.Kind + " " + plain(o.Namespace) + "/" + plain(name)
}

// plain returns a valid name unchanged, and any other text quoted and truncated:
// messages go to logs and terminals.
func plain(name string) string {
	if len(validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(name, "-")))) == 0 {
		return name
	}
	if len(name) > 100 {
		name = name[:100]
	}
	return strconv.Quote(name)
}

// volume is an inline volume.
type volume struct {
	name string
	*corev1.CSIVolumeSource
}

// Judge returns the violations of the rules by an object. It returns none for an object
// that is being deleted, so that its finalizers can be removed.
func (p *Policy) Judge(object Object, namespace *corev1.Namespace, driver func(string) *storagev1.CSIDriver) []Finding {
	if object.DeletionTimestamp != nil || p.exempt[object.Namespace] {
		return nil
	}
	c := check{object: object, namespace: namespace, settings: p}
	if c.namespace == nil {
		c.namespace = &corev1.Namespace{}
	}
	for i := range object.Spec.Volumes {
		if v := &object.Spec.Volumes[i]; v.CSI != nil {
			c.volumes = append(c.volumes, volume{v.Name, v.CSI})
		}
	}
	if len(c.volumes) == 0 {
		return nil
	}
	c.allowedDrivers()
	c.reservedKeys()
	for _, volumes := range c.byDriver() {
		c.ofDriver(driver(volumes[0].Driver), volumes)
	}
	return c.findings
}

// check is one run of Judge.
type check struct {
	object    Object
	namespace *corev1.Namespace
	settings  *Policy
	volumes   []volume
	findings  []Finding
}

// byDriver are the volumes of each driver, in the order of their first ones.
func (c *check) byDriver() [][]volume {
	var groups [][]volume
	group := map[string]int{}
	for _, v := range c.volumes {
		at, known := group[v.Driver]
		if !known {
			at = len(groups)
			group[v.Driver], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], v)
	}
	return groups
}

// find records a violation by some volumes, if there are any. text names the fault and the
// action.
func (c *check) find(mode Mode, rule Rule, violating []volume, text func(first volume) string) {
	if len(violating) == 0 || mode == Enforce && !c.object.isPod() {
		return
	}
	first, others := violating[0], ""
	if len(violating) > 1 {
		others = fmt.Sprintf(" (and %d more)", len(violating)-1)
	}
	c.findings = append(c.findings, Finding{
		Mode: mode, Rule: rule, Volume: first.name, Driver: first.Driver,
		Message: c.object.subject() + ": inline volume " + plain(first.name) + others + ": " + text(first),
	})
}

// always records a violation of a rule without modes: pods are rejected, and the
// author of a template gets an event.
func (c *check) always(rule Rule, violating []volume, text func(first volume) string) {
	if c.object.isPod() {
		c.find(Enforce, rule, violating, text)
		return
	}
	c.find(Warn, rule, violating, text)
	c.find(Audit, rule, violating, text)
}

func that(violates func(volume) bool, volumes []volume) []volume {
	return slices.DeleteFunc(slices.Clone(volumes), func(v volume) bool { return !violates(v) })
}

func (c *check) allowedDrivers() {
	for _, mode := range Modes() {
		key := ListPrefix + string(mode)
		allowed := c.settings.defaults[mode]
		if text, says := c.namespace.Annotations[key]; says {
			allowed = parseList(text)
		}
		violating := that(func(v volume) bool { return !allowed.allows(v.Driver) }, c.volumes)
		c.find(mode, AllowedDrivers, violating, func(v volume) string {
			return fmt.Sprintf("driver %s is not allowed in namespace %s (rule allowed-drivers, %s); "+
				"use a driver that is, or have an administrator add it to the namespace's annotation %s", plain(v.Driver), plain(c.object.Namespace), mode, key)
		})
	}
}

func (c *check) reservedKeys() {
	violating := that(func(v volume) bool {
		for key := range v.VolumeAttributes {
			if strings.HasPrefix(key, ReservedPrefix) {
				return true
			}
		}
		return false
	}, c.volumes)
	c.always(ReservedKeys, violating, func(v volume) string {
		return fmt.Sprintf("driver %s: csi.volumeAttributes has a key that begins with %s, which only the kubelet may set (rule reserved-keys); remove it",
			plain(v.Driver), ReservedPrefix)
	})
}

// ofDriver applies the rules about a CSIDriver. A missing one counts as one without
// labels.
func (c *check) ofDriver(driver *storagev1.CSIDriver, volumes []volume) {
	name := plain(volumes[0].Driver)
	if c.settings.profiles {
		c.profile(name, driver, volumes)
	}
	if driver == nil {
		return // the kubelet refuses the volume until there is one
	}
	if WantsReadOnly(driver) {
		writable := that(func(v volume) bool { return v.ReadOnly == nil || !*v.ReadOnly }, volumes)
		c.always(ReadOnly, writable, func(volume) string {
			return fmt.Sprintf("driver %s has read-only inline volumes only (rule read-only); set csi.readOnly: true", name)
		})
	}
	if !slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral) {
		c.always(Lifecycle, volumes, func(volume) string {
			return fmt.Sprintf("driver %s has no inline volumes: its CSIDriver does not list Ephemeral in spec.volumeLifecycleModes (rule lifecycle); "+
				"use a claim or a generic ephemeral volume", name)
		})
	}
}

// rank orders the levels; any other text has no rank.
func rank(level string) (int, bool) {
	i := slices.Index([]string{"restricted", "baseline", "privileged"}, level)
	return i, i >= 0
}

// need returns the level that a driver needs.
func need(driver *storagev1.CSIDriver) string {
	if driver != nil {
		for _, key := range []string{ProfileLabel, OpenShiftProfileLabel} {
			if level, has := driver.Labels[key]; has {
				return level
			}
		}
	}
	return "privileged"
}

// level of the namespace in a mode. Pod Security admission treats a level that it
// does not know as restricted.
func (c *check) level(mode Mode) string {
	level := c.namespace.Labels[LevelPrefix+string(mode)]
	if _, known := rank(level); !known {
		return "restricted"
	}
	return level
}

func (c *check) profile(name string, driver *storagev1.CSIDriver, volumes []volume) {
	needed := need(driver)
	desired, known := rank(needed)
	if !slices.ContainsFunc(Modes(), func(m Mode) bool { return c.level(m) != "privileged" }) {
		return
	}
	for _, mode := range Modes() {
		if has, _ := rank(c.level(mode)); known && has >= desired {
			continue
		}
		c.find(mode, Profile, volumes, func(volume) string {
			if !known {
				return fmt.Sprintf("driver %s has the unknown inline profile %s (rule profile, %s); "+
					"have an administrator label its CSIDriver privileged, baseline or restricted", name, plain(needed), mode)
			}
			return fmt.Sprintf("driver %s is for namespaces of level %s, and %s is %s (rule profile, %s); "+
				"use a namespace whose label %s allows it, or another driver",
				name, needed, plain(c.object.Namespace), c.level(mode), mode, LevelPrefix+string(mode))
		})
	}
}
