package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Account is a service account whose pods may have the pipe.
type Account struct{ Namespace, Name string }

// ParseAccount reads NAMESPACE/SERVICEACCOUNT.
func ParseAccount(text string) (Account, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Account{}, fmt.Errorf("%q is not NAMESPACE/SERVICEACCOUNT, such as kube-system/ebs-csi-node-sa", text)
	}
	return Account{namespace, name}, nil
}

func (a Account) String() string { return a.Namespace + "/" + a.Name }

// Rule decides which pods may reach the proxy's pipes. It is safe for concurrent use.
type Rule struct {
	allowed    []Account
	labelKey   string
	labelValue string
	rules      rules
}

// New makes a Rule. allowed are the service accounts of node plugins. With a label,
// KEY=VALUE, their pods must have the label as well; "" requires none.
func New(allowed []Account, label string) (*Rule, error) {
	r := &Rule{allowed: slices.Clone(allowed), rules: compile()}
	if label == "" {
		return r, nil
	}
	var found bool
	r.labelKey, r.labelValue, found = strings.Cut(label, "=")
	if !found || len(validation.IsQualifiedName(r.labelKey)) > 0 || len(validation.IsValidLabelValue(r.labelValue)) > 0 {
		return nil, fmt.Errorf("label %q is not KEY=VALUE", label)
	}
	return r, nil
}

// Classify returns the class of a volume's path.
func (r *Rule) Classify(path string) Verdict { return r.rules.classify(path) }

// Pod is the object that the rule checks: a pod, or a template of pods.
type Pod struct {
	Namespace string
	Labels    map[string]string
	Spec      *corev1.PodSpec
}

// CheckPod returns an error for a pod that must be rejected.
func (r *Rule) CheckPod(pod Pod) error {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.HostPath == nil {
			continue
		}
		switch r.Classify(volume.HostPath.Path) {
		case Ordinary:
		case Forbidden:
			return forbidden("volume "+volume.Name, "hostPath.path", volume.HostPath.Path)
		case ProxyPipe:
			if !r.approved(pod) {
				return r.refused(pod, volume)
			}
		}
	}
	return nil
}

// CheckVolume returns an error for a PersistentVolume that must be rejected. A pod would
// reach the pipe through a claim, which does not show the path, so no pod is approved.
func (r *Rule) CheckVolume(volume *corev1.PersistentVolume) error {
	paths := map[string]string{}
	if volume.Spec.HostPath != nil {
		paths["spec.hostPath.path"] = volume.Spec.HostPath.Path
	}
	if volume.Spec.Local != nil {
		paths["spec.local.path"] = volume.Spec.Local.Path
	}
	for field, path := range paths {
		switch r.Classify(path) {
		case Ordinary:
		case Forbidden:
			return forbidden("PersistentVolume "+volume.Name, field, path)
		case ProxyPipe:
			return fmt.Errorf("PersistentVolume %s: %s %q is a pipe of csi-proxy, which no PersistentVolume may lead to; mount it as a hostPath volume of an approved pod",
				volume.Name, field, path)
		}
	}
	return nil
}

func forbidden(what, field, path string) error {
	return fmt.Errorf(`%s: %s %q is a device path, or another spelling of one: no pod may have it; a pipe is written \\.\pipe\NAME with exactly these separators, a directory by its drive`,
		what, field, path)
}

func (r *Rule) refused(pod Pod, volume *corev1.Volume) error {
	return fmt.Errorf("volume %s: hostPath.path %q is a pipe of csi-proxy, with which a pod can do privileged storage operations on its node: "+
		"service account %s/%s is not allowed to use it, and the pod is neither a HostProcess pod nor, with spec.os unset, privileged in all its containers; "+
		"ask an administrator of the cluster to allow the service account", volume.Name, volume.HostPath.Path, pod.Namespace, accountOf(pod.Spec))
}

// approved reports whether the pod may have the pipe.
func (r *Rule) approved(pod Pod) bool {
	return hostProcess(pod.Spec) || pod.Spec.OS == nil && privileged(pod.Spec) || r.allows(pod)
}

func (r *Rule) allows(pod Pod) bool {
	if value, has := pod.Labels[r.labelKey]; r.labelKey != "" && (!has || value != r.labelValue) {
		return false
	}
	return slices.Contains(r.allowed, Account{pod.Namespace, accountOf(pod.Spec)})
}

// accountOf is the service account a pod runs as: the API server's admission
// fills in "default", possibly after this rule.
func accountOf(spec *corev1.PodSpec) string {
	switch {
	case spec.ServiceAccountName != "":
		return spec.ServiceAccountName
	case spec.DeprecatedServiceAccount != "":
		return spec.DeprecatedServiceAccount
	}
	return "default"
}

// contexts are the security contexts of all containers, of each kind; one may be nil.
func contexts(spec *corev1.PodSpec) []*corev1.SecurityContext {
	var all []*corev1.SecurityContext
	for i := range spec.InitContainers {
		all = append(all, spec.InitContainers[i].SecurityContext)
	}
	for i := range spec.Containers {
		all = append(all, spec.Containers[i].SecurityContext)
	}
	for i := range spec.EphemeralContainers {
		all = append(all, spec.EphemeralContainers[i].SecurityContext)
	}
	return all
}

// privileged reports whether every container is declared privileged. The flag has no
// effect on Windows. In the KEP, a pod declares with it that it uses the pipe, and Pod
// Security admission governs it.
func privileged(spec *corev1.PodSpec) bool {
	all := contexts(spec)
	return len(all) > 0 && !slices.ContainsFunc(all, func(c *corev1.SecurityContext) bool {
		return c == nil || c.Privileged == nil || !*c.Privileged
	})
}

// hostProcess reports whether every container is a HostProcess container. Such a pod has
// all rights of the proxy without its pipe.
func hostProcess(spec *corev1.PodSpec) bool {
	ofPod := spec.SecurityContext != nil && isHostProcess(spec.SecurityContext.WindowsOptions, false)
	all := contexts(spec)
	return len(all) > 0 && !slices.ContainsFunc(all, func(c *corev1.SecurityContext) bool {
		if c == nil {
			return !ofPod
		}
		return !isHostProcess(c.WindowsOptions, ofPod)
	})
}

func isHostProcess(options *corev1.WindowsSecurityContextOptions, otherwise bool) bool {
	if options == nil || options.HostProcess == nil {
		return otherwise
	}
	return *options.HostProcess
}
