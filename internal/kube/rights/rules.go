package rights

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// rules are the rights that a SelfSubjectRulesReview lists in each namespace.
type rules map[Namespace][]authorizationv1.ResourceRule

func (r rules) has(right Right) bool {
	return slices.ContainsFunc(r[right.In], func(rule authorizationv1.ResourceRule) bool { return allows(rule, right) })
}

// allows leaves rules for certain names aside: they are for certain objects.
func allows(rule authorizationv1.ResourceRule, right Right) bool {
	resource := right.Resource
	forms := []string{resource, "*"}
	if right.Subresource != "" {
		forms = []string{resource + "/" + right.Subresource, "*/" + right.Subresource, "*"}
	}
	return len(rule.ResourceNames) == 0 && oneOf(rule.Verbs, right.Verb, "*") &&
		oneOf(rule.APIGroups, right.Group, "*") && oneOf(rule.Resources, forms...)
}

func oneOf(list []string, wanted ...string) bool {
	return slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(list, w) })
}
