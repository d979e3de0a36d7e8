package claim

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// HostnameLabel is the label that names a node among its labels.
const HostnameLabel = corev1.LabelHostname

// FitsNode reports whether a PersistentVolume can be used on a node with these
// labels. Terms are alternatives, all of a term must match, and a
// term without anything fits no node (k8s.io/component-helpers, nodeaffinity).
func FitsNode(affinity *corev1.VolumeNodeAffinity, node string, labels map[string]string) bool {
	if affinity == nil || affinity.Required == nil {
		return true
	}
	return slices.ContainsFunc(affinity.Required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			return false
		}
		for _, requirement := range term.MatchExpressions {
			value, has := labels[requirement.Key]
			if !matches(requirement, value, has) {
				return false
			}
		}
		for _, requirement := range term.MatchFields {
			if requirement.Key != "metadata.name" || !matches(requirement, node, true) {
				return false
			}
		}
		return true
	})
}

func matches(requirement corev1.NodeSelectorRequirement, value string, has bool) bool {
	switch requirement.Operator {
	case corev1.NodeSelectorOpIn:
		return has && slices.Contains(requirement.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !has || !slices.Contains(requirement.Values, value)
	case corev1.NodeSelectorOpExists:
		return has
	case corev1.NodeSelectorOpDoesNotExist:
		return !has
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		return has && len(requirement.Values) == 1 && compares(requirement.Operator, value, requirement.Values[0])
	}
	return false
}

func compares(operator corev1.NodeSelectorOperator, value, bound string) bool {
	number, err := strconv.ParseInt(value, 10, 64)
	limit, failed := strconv.ParseInt(bound, 10, 64)
	if err != nil || failed != nil {
		return false
	}
	if operator == corev1.NodeSelectorOpGt {
		return number > limit
	}
	return number < limit
}

// DescribeAffinity describes which nodes can use a volume, for messages.
func DescribeAffinity(affinity *corev1.VolumeNodeAffinity) string {
	var terms []string
	for _, term := range affinity.Required.NodeSelectorTerms {
		var parts []string
		for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			parts = append(parts, strings.TrimSpace(r.Key+" "+string(r.Operator)+" "+strings.Join(r.Values, ",")))
		}
		terms = append(terms, strings.Join(parts, " and "))
	}
	return strings.Join(terms, ", or ")
}
