// Package inline decides which CSI volumes a pod may have inline (spec.volumes[].csi). It
// replaces AllowedCSIDrivers of PodSecurityPolicy, for which upstream Kubernetes has no
// successor.
//
// The rules:
//
//   - allowed-drivers: a namespace lists the drivers that its pods may use, for
//     each mode (enforce, warn, audit) in an annotation of its own.
//   - profile: a label of a driver has the level of the Pod Security Standards that its
//     volumes need; a namespace of a stricter level may not have them.
//   - reserved-keys: no attribute of a volume may have the prefix of those that the
//     kubelet sets (csi.storage.k8s.io/…): with podInfoOnMount off it would reach the driver.
//   - read-only: a label of a driver may require that its volumes are read-only.
//   - lifecycle: a driver whose CSIDriver does not list Ephemeral has no inline volumes.
//
// A pod that violates an enforced rule is rejected. A template is not rejected, only the
// pods made from it: its author gets a warning and the audit log an entry, as with Pod
// Security admission. The rules apply to creation: a pod's volumes never change, and
// ephemeral containers add none.
//
// The chart has the same rules as admission policies, in CEL. One table of cases (package
// policytest) tests all forms, including messages.
package inline

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Keys of labels and annotations.
const (
	// ListPrefix and a mode are a namespace's annotation with the drivers it
	// allows: names with commas between them, or * for all.
	ListPrefix = "inline.policy.holdfast.dev/"
	// ProfileLabel of a CSIDriver is the level of a namespace that its inline
	// volumes need: privileged, baseline or restricted. It counts before
	// OpenShiftProfileLabel, which means the same.
	ProfileLabel          = "policy.holdfast.dev/inline-profile"
	OpenShiftProfileLabel = "security.openshift.io/csi-ephemeral-volume-profile"
	// ReadOnlyLabel of a CSIDriver asks that its inline volumes are read-only,
	// with every value but false.
	ReadOnlyLabel = "policy.holdfast.dev/inline-read-only"
	// LevelPrefix and a mode are a namespace's label with its level (Pod Security
	// admission).
	LevelPrefix = "pod-security.kubernetes.io/"
	// ReservedPrefix is of the attributes that the kubelet gives a driver.
	ReservedPrefix = "csi.storage.k8s.io/"
)

// Mode is the consequence of a violation.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce" // pods are rejected
	Warn    Mode = "warn"    // the user is warned
	Audit   Mode = "audit"   // it is written to the audit log
)

// Modes lists them all.
func Modes() []Mode { return []Mode{Enforce, Warn, Audit} }

// Rule is the name of a rule in messages.
type Rule string

// The rules.
const (
	AllowedDrivers Rule = "allowed-drivers"
	Profile        Rule = "profile"
	ReservedKeys   Rule = "reserved-keys"
	ReadOnly       Rule = "read-only"
	Lifecycle      Rule = "lifecycle"
)

// Finding is a violation of a rule. One Finding covers all volumes of an object that
// violate the rule, or all volumes of one driver if the rule is about a driver.
type Finding struct {
	Mode    Mode
	Rule    Rule
	Volume  string // the first one
	Driver  string // of that volume
	Message string // names the object, the volume, the driver, the rule and what to do
}

// Options of a Policy.
type Options struct {
	// Defaults are the lists for namespaces without the annotation of a mode, in
	// the form of the annotation. A mode that is missing allows every driver.
	Defaults map[Mode]string
	// Exempt are namespaces in which pods are neither checked nor changed.
	Exempt []string
	// Profiles enables the rule. Without a label, a driver counts as privileged and a
	// namespace as restricted, so both must be labelled before.
	Profiles bool
	// Audit, if set, gets what Admit finds in the mode Audit, and what it rejects.
	Audit func(Finding)
}

// Policy is the rules with the settings of a cluster or a host. It is safe for
// concurrent use.
type Policy struct {
	defaults map[Mode]list
	exempt   map[string]bool
	profiles bool
	audit    func(Finding)
}

// New makes a Policy.
func New(o Options) (*Policy, error) {
	p := &Policy{defaults: map[Mode]list{}, exempt: map[string]bool{}, profiles: o.Profiles, audit: o.Audit}
	for _, mode := range Modes() {
		p.defaults[mode] = list{everything: true}
	}
	for mode, text := range o.Defaults {
		if !slices.Contains(Modes(), mode) {
			return nil, fmt.Errorf("%.100q is not a mode; want enforce, warn or audit", mode)
		}
		parsed := parseList(text)
		if err := parsed.check(); err != nil {
			return nil, fmt.Errorf("default of mode %s: %w", mode, err)
		}
		p.defaults[mode] = parsed
	}
	for _, namespace := range o.Exempt {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return nil, fmt.Errorf("%.100q is not the name of a namespace", namespace)
		}
		p.exempt[namespace] = true
	}
	return p, nil
}

// Admit decides about a pod. The error has one line for each reason to reject it; warnings
// are for the user in any case. driver finds a CSIDriver, or returns nil. A nil namespace
// has neither labels nor annotations.
func (p *Policy) Admit(
	pod *corev1.Pod, namespace *corev1.Namespace, driver func(string) *storagev1.CSIDriver,
) (warnings []string, err error) {
	var refusals []error
	for _, finding := range p.Judge(OfPod(pod), namespace, driver) {
		switch finding.Mode {
		case Warn:
			warnings = append(warnings, finding.Message)
			continue
		case Enforce:
			refusals = append(refusals, errors.New(finding.Message))
		case Audit:
		}
		if p.audit != nil {
			p.audit(finding)
		}
	}
	return warnings, errors.Join(refusals...)
}
