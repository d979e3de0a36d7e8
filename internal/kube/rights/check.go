package rights

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// questions limits the concurrent access reviews.
const questions = 8

// Missing is a right that the process lacks.
type Missing struct {
	Right     Right
	Roles     []Role // that need it
	Namespace string // in which it is missing; "" means all namespaces
	// Reason is the reason of the API server's authorizer, if it gives one.
	Reason string
}

// String names the missing right, its purpose and the command that checks it.
func (m Missing) String() string {
	names := make([]string, len(m.Roles))
	for i, role := range m.Roles {
		names[i] = string(role)
	}
	where := ""
	if m.Namespace != "" {
		where = fmt.Sprintf(" in namespace %s", m.Namespace)
	}
	text := fmt.Sprintf("no right to %s%s, which %s needs", m.Right, where, strings.Join(names, ", "))
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text
}

// Checker reads the rights of this process from the API server.
type Checker struct {
	Client    api.AuthorizationV1
	Mode      Mode
	Namespace string // of the process
	Intents   string // the namespace of intents
}

// named returns the namespace of a right; "" means all namespaces.
func (c Checker) named(in Namespace) string {
	return map[Namespace]string{Own: c.Namespace, Intents: c.Intents}[in]
}

// Check returns the rights that roles need and the process lacks, in the order of Of. It
// reads all rules at once (SelfSubjectRulesReview). A right that the rules lack gets a
// review of its own (SelfSubjectAccessReview), because authorizers other than RBAC may
// grant it without listing it. After an error nothing is known.
func (c Checker) Check(ctx context.Context, roles ...Role) ([]Missing, error) {
	granted := c.granted(ctx)
	needed := Of(c.Mode, roles...)
	found := make([]*Missing, len(needed))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(questions)
	for i, right := range needed {
		if granted.has(right) {
			continue
		}
		group.Go(func() error {
			missing, err := c.ask(ctx, right)
			if missing != nil {
				missing.Roles = NeededBy(right, c.Mode, roles...)
			}
			found[i] = missing
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all []Missing
	for _, missing := range found {
		if missing != nil {
			all = append(all, *missing)
		}
	}
	return all, nil
}

// granted reads the rules of the process in its namespaces, and in one in which only
// the rules for all namespaces apply. A rule that it cannot read counts as missing.
func (c Checker) granted(ctx context.Context) rules {
	return rules{
		Own: c.rulesIn(ctx, c.Namespace), Intents: c.rulesIn(ctx, c.Intents), Everywhere: c.rulesIn(ctx, elsewhere),
	}
}

// elsewhere is a namespace in which no process has rights of its own: it cannot exist,
// because the name of a namespace has no dots.
const elsewhere = "no.such.namespace"

func (c Checker) rulesIn(ctx context.Context, namespace string) []authorizationv1.ResourceRule {
	review, err := c.Client.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil
	}
	return review.Status.ResourceRules
}

// ask makes a SelfSubjectAccessReview. It returns nil if the right is granted.
func (c Checker) ask(ctx context.Context, right Right) (*Missing, error) {
	namespace := c.named(right.In)
	review, err := c.Client.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: right.Verb, Group: right.Group,
			Resource: right.Resource, Subresource: right.Subresource,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API server for the right to %s: %w", right, err)
	}
	if review.Status.Allowed {
		return nil, nil
	}
	return &Missing{Right: right, Namespace: namespace, Reason: review.Status.Reason}, nil
}

// Report logs one line for each missing right, and one if the rights cannot be read. A
// missing right does not stop the start: the API server's rejection shows it again, with
// the object, when it is needed.
func (c Checker) Report(ctx context.Context, logger *slog.Logger, roles ...Role) {
	missing, err := c.Check(ctx, roles...)
	if err != nil {
		logger.WarnContext(ctx, "the rights of this process are unknown", "error", err)
		return
	}
	for _, m := range missing {
		logger.ErrorContext(ctx, m.String(), "right", m.Right.String(), "namespace", m.Namespace)
	}
}
