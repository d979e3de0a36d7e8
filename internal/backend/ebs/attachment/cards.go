package attachment

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// twoCards are the instance types known to have two EBS cards, by families and
// sizes (EC2 API, DescribeInstanceTypes, MaximumEbsCards).
var twoCards = []struct{ families, sizes []string }{
	{
		strings.Fields("c8gb c8gn m8gb m8gn r8gb r8gn"),
		strings.Fields("48xlarge metal-48xl"),
	},
	{
		strings.Fields("c8ib c8in m8ib m8idb m8idn m8in r8ib r8idb r8idn r8in"),
		strings.Fields("96xlarge metal-96xl"),
	},
	{strings.Fields("g7"), strings.Fields("48xlarge")},
}

// cardsGuessed is how long the table is used for a type that EC2 refused to describe.
const cardsGuessed = 10 * time.Minute

// cards is how many EBS cards an instance has, by EC2 or, if EC2 refuses the call,
// by the table.
func (m *Machine) cards(ctx context.Context, instance cloud.Instance) int {
	if cards, ok := m.guessedCards.Get(instance.Type); ok {
		return cards
	}
	t, err := m.cloud.InstanceType(ctx, instance.Type)
	if err == nil {
		return max(t.Cards, 1)
	}
	cards := tableCards(instance.Type)
	if ctx.Err() == nil {
		m.guessedCards.Set(instance.Type, cards, cardsGuessed)
	}
	return cards
}

func tableCards(instanceType string) int {
	family, size, _ := strings.Cut(instanceType, ".")
	for _, group := range twoCards {
		if slices.Contains(group.families, family) && slices.Contains(group.sizes, size) {
			return 2
		}
	}
	return 1
}
