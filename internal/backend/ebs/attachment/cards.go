package attachment

import (
	"context"
	"slices"
	"strings"
	"sync"
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

// The answer of EC2 about an instance type is kept for an hour. If EC2 refuses it,
// the table is used for ten minutes.
const (
	cardsKnown   = time.Hour
	cardsGuessed = 10 * time.Minute
)

// cardTypes caches the cards of instance types.
type cardTypes struct {
	mu    sync.Mutex
	types map[string]cardType
}

type cardType struct {
	cards int
	until time.Time
}

// cards is how many EBS cards an instance has, by EC2 or, if EC2 refuses the call,
// by the table.
func (m *Machine) cards(ctx context.Context, instance cloud.Instance) int {
	now := time.Now()
	m.types.mu.Lock()
	known := m.types.types[instance.Type]
	m.types.mu.Unlock()
	if now.Before(known.until) {
		return known.cards
	}
	t, err := m.cloud.InstanceType(ctx, instance.Type)
	found := cardType{cards: max(t.Cards, 1), until: now.Add(cardsKnown)}
	if err != nil {
		found = cardType{cards: tableCards(instance.Type), until: now.Add(cardsGuessed)}
	}
	if ctx.Err() == nil {
		m.types.mu.Lock()
		defer m.types.mu.Unlock()
		if m.types.types == nil {
			m.types.types = map[string]cardType{}
		}
		m.types.types[instance.Type] = found
	}
	return found.cards
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
