package lab

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
)

// Choices are the numbers that a run chose, in order. A run is repeated by its seed, or by
// its choices alone.
type Choices []uint32

// String is the text of choices for a table of tests: "3 0*12 1".
func (c Choices) String() string {
	var words []string
	for i := 0; i < len(c); {
		end := i
		for end < len(c) && c[end] == c[i] {
			end++
		}
		word := strconv.FormatUint(uint64(c[i]), 10)
		if n := end - i; n > 1 {
			word += "*" + strconv.Itoa(n)
		}
		words = append(words, word)
		i = end
	}
	return strings.Join(words, " ")
}

// ParseChoices reads what String wrote. It returns an error for anything else.
func ParseChoices(text string) (Choices, error) {
	var c Choices
	for _, word := range strings.Fields(text) {
		value, times, repeated := strings.Cut(word, "*")
		number, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return nil, err
		}
		count := 1
		if repeated {
			if count, err = strconv.Atoi(times); err != nil {
				return nil, err
			}
		}
		for range count {
			c = append(c, uint32(number))
		}
	}
	return c, nil
}

// source is where the choices of a run come from.
type source struct {
	random *rand.Rand // nil for a replay of given choices
	given  Choices
	made   Choices
	turns  atomic.Int64 // how often the run has settled, for the watchdog
}

func newSource(seed uint64) *source {
	return &source{random: rand.New(rand.NewPCG(seed, 0x686f6c6466617374))} //nolint:gosec // a seed decides
}

// choose returns a number below n. A replay has 0 after the given choices.
func (s *source) choose(n int) int {
	chosen := uint32(0)
	switch {
	case s.random != nil:
		chosen = s.random.Uint32N(uint32(n)) //nolint:gosec // n is small
	case len(s.made) < len(s.given):
		chosen = s.given[len(s.made)] % uint32(n) //nolint:gosec // n is small
	}
	s.made = append(s.made, chosen)
	return int(chosen)
}
