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

// questions is how many rights are asked for at once.
const questions = 8

// Missing is a right that the process lacks.
type Missing struct {
	Right     Right
	Roles     []Role // that need it
	Namespace string // where it is missing; "" is everywhere
	// Reason is what the API server's authorizer said, if anything.
	Reason string
}

// String tells what is missing, what for, and how to see it.
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

// Checker asks the API server what this process may do.
type Checker struct {
	Client    api.AuthorizationV1
	Mode      Mode
	Namespace string // of the process
	Intents   string // the namespace of intents
}

// named is the namespace of a right; "" is everywhere.
func (c Checker) named(in Namespace) string {
	return map[Namespace]string{Own: c.Namespace, Intents: c.Intents}[in]
}

// Check returns the rights that roles need and the process lacks, in the order
// of Of. It asks for all rules at once (SelfSubjectRulesReview); a rule that is
// not among them is asked for by itself (SelfSubjectAccessReview), since
// authorizers other than RBAC may grant it without listing it. An error says
// that nothing is known.
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

// granted reads the rules of the process in its namespaces and in one where only
// those for all namespaces hold. What cannot be read is no rule.
func (c Checker) granted(ctx context.Context) rules {
	return rules{
		Own: c.rulesIn(ctx, c.Namespace), Intents: c.rulesIn(ctx, c.Intents), Everywhere: c.rulesIn(ctx, elsewhere),
	}
}

// elsewhere is a namespace that nobody has rights in: it cannot be made, since
// names of namespaces have no dots.
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

// ask is a SelfSubjectAccessReview; nil is yes.
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

// Report writes one line for each right that is missing, and one if none could
// be asked for. It never holds the start up: what is missing shows again, with
// the object it is missed for, when it is used.
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
