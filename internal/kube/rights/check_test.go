package rights

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// authorizer is an API server's: what it lists, and what it grants when asked
// for one right.
type authorizer struct {
	everywhere, own []authorizationv1.ResourceRule
	intents         []authorizationv1.ResourceRule
	grants          func(authorizationv1.ResourceAttributes) bool
	listing, asking error
	asked           atomic.Int32
}

func (a *authorizer) checker(mode Mode) Checker {
	clients := fake.NewClientset()
	clients.PrependReactor("create", "selfsubjectrulesreviews", func(action kubetesting.Action) (bool, runtime.Object, error) {
		review := objectOf[authorizationv1.SelfSubjectRulesReview](action)
		local := map[string][]authorizationv1.ResourceRule{"storage": a.own, "storage-intents": a.intents}
		review.Status.ResourceRules = slices.Concat(a.everywhere, local[review.Spec.Namespace])
		return true, review, a.listing
	})
	clients.PrependReactor("create", "selfsubjectaccessreviews", func(action kubetesting.Action) (bool, runtime.Object, error) {
		a.asked.Add(1)
		review := objectOf[authorizationv1.SelfSubjectAccessReview](action)
		review.Status.Allowed = a.grants != nil && a.grants(*review.Spec.ResourceAttributes)
		review.Status.Reason = "no rule matches"
		return true, review, a.asking
	})
	return Checker{Client: apiserver.Narrow(clients).AuthorizationV1(), Mode: mode, Namespace: "storage", Intents: "storage-intents"}
}

func objectOf[T any, P interface {
	*T
	runtime.Object
}](action kubetesting.Action) P {
	create, ok := action.(kubetesting.CreateAction)
	if !ok {
		return new(T)
	}
	object, ok := create.GetObject().DeepCopyObject().(P)
	if !ok {
		return new(T)
	}
	return object
}

// granting turns rights into rules, without those that leave says.
func granting(rights []Right, leave func(Right) bool) *authorizer {
	a := &authorizer{}
	for _, right := range rights {
		if leave(right) {
			continue
		}
		resource := right.Resource
		if right.Subresource != "" {
			resource += "/" + right.Subresource
		}
		rule := authorizationv1.ResourceRule{APIGroups: []string{right.Group}, Resources: []string{resource}, Verbs: []string{right.Verb}}
		switch right.In {
		case Own:
			a.own = append(a.own, rule)
		case Intents:
			a.intents = append(a.intents, rule)
		case Everywhere:
			a.everywhere = append(a.everywhere, rule)
		}
	}
	return a
}

func nothing(Right) bool { return false }

func TestCheck_reviewsOnlyRightsThatAreNotListed(t *testing.T) {
	a := granting(Of(Central, Roles()...), nothing)
	missing, err := a.checker(Central).Check(t.Context(), Roles()...)
	if err != nil || len(missing) != 0 || a.asked.Load() != 0 {
		t.Errorf("missing %v, error %v, asked %d times; want none", missing, err, a.asked.Load())
	}
}

func TestCheck_namesTheMissingRightItsRolesAndNamespace(t *testing.T) {
	a := granting(Of(Node, Roles()...), func(r Right) bool {
		return r.Resource == "configmaps" && r.Verb == "list" || r.Subresource == "status" && r.Resource == "persistentvolumeclaims"
	})
	missing, err := a.checker(Node).Check(t.Context(), Provision, Resize, Health, Intent)
	if err != nil || len(missing) != 2 || a.asked.Load() != 2 {
		t.Fatalf("missing %v, error %v, asked %d times", missing, err, a.asked.Load())
	}
	for i, want := range []string{
		"no right to list configmaps in namespace storage-intents, which intent needs: no rule matches",
		"no right to patch persistentvolumeclaims/status, which resize, health needs: no rule matches",
	} {
		if got := missing[i].String(); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

// A right in the driver's namespace does not extend to all namespaces.
func TestCheck_namespacedRightsDoNotCountEverywhere(t *testing.T) {
	a := &authorizer{own: []authorizationv1.ResourceRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	missing, err := a.checker(Central).Check(t.Context(), Events, Lease)
	if err != nil || len(missing) != 2 {
		t.Fatalf("missing %v, error %v; want the two of events", missing, err)
	}
}

func TestCheck_acceptsAuthorizersThatListNothing(t *testing.T) {
	for name, a := range map[string]*authorizer{
		"an empty list":          {},
		"no answer to the lists": {listing: errors.New("not served")},
	} {
		a.grants = func(r authorizationv1.ResourceAttributes) bool {
			return r.Namespace == map[string]string{"leases": "storage", "configmaps": "storage-intents"}[r.Resource] || r.Resource != "leases" && r.Resource != "configmaps"
		}
		missing, err := a.checker(Central).Check(t.Context(), Roles()...)
		if err != nil || len(missing) != 0 {
			t.Errorf("%s: missing %v, error %v", name, missing, err)
		}
	}
}

func TestCheck_rulesForCertainNamesDoNotCount(t *testing.T) {
	a := &authorizer{everywhere: []authorizationv1.ResourceRule{{
		APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}, ResourceNames: []string{"one"},
	}}}
	missing, err := a.checker(Central).Check(t.Context(), Events)
	if err != nil || len(missing) != 2 {
		t.Errorf("missing %v, error %v; want both", missing, err)
	}
}

func TestCheck_subresourcesAreNotTheirResource(t *testing.T) {
	status := Right{Resource: "persistentvolumeclaims", Subresource: "status", Verb: "patch"}
	for resource, want := range map[string]bool{
		"persistentvolumeclaims": false, "persistentvolumeclaims/status": true, "*/status": true, "*": true, "persistentvolumes/status": false,
	} {
		rule := authorizationv1.ResourceRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"patch"}}
		if got := allows(rule, status); got != want {
			t.Errorf("a rule for %s allows it: %t; want %t", resource, got, want)
		}
	}
}

func TestCheck_anUnreachableServerIsAnError(t *testing.T) {
	a := &authorizer{listing: errors.New("refused"), asking: errors.New("refused")}
	if missing, err := a.checker(Central).Check(t.Context(), Roles()...); err == nil || missing != nil {
		t.Errorf("missing %v, error %v", missing, err)
	}
}

func TestReport_writesALineForEach(t *testing.T) {
	var log bytes.Buffer
	a := granting(Of(Central, Events), func(r Right) bool { return r.Verb == "patch" })
	a.checker(Central).Report(context.WithoutCancel(t.Context()), slog.New(slog.NewTextHandler(&log, nil)), Events)
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "no right to patch events") {
		t.Errorf("%s", log.String())
	}
}
