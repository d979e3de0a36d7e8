package powercut

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
)

// State is a content that a power cut can leave.
type State struct {
	// Number counts the states of a recording from 0; the same number is the same
	// state in each run with the same choice.
	Number int
	// Flushes is how many flushes completed before the power cut.
	Flushes int
	// Survived are the surviving ones of the Unflushed writes after the last flush, by
	// their index from 0.
	Survived  []int
	Unflushed int
	// Torn is a write of which only the sectors From to To survived.
	Torn *Tear
	// Marks are those before the power cut, which was just before the next flush
	// completed, or at the end.
	Marks []string
}

// Tear is a write that survived in part.
type Tear struct{ Write, From, To int }

func (s State) String() string {
	text := fmt.Sprintf("state %d: power cut after flush %d, with %d of the %d writes after it: %v",
		s.Number, s.Flushes, len(s.Survived), s.Unflushed, s.Survived)
	if s.Torn != nil {
		text += fmt.Sprintf(", of write %d only the sectors from %d to %d", s.Torn.Write, s.Torn.From, s.Torn.To-1)
	}
	if len(s.Marks) > 0 {
		text += ", after " + strings.Join(s.Marks, ", ")
	}
	return text
}

// Choice says which states to build.
type Choice struct {
	// PerFlush is how many subsets of the writes after each flush are built at most, in
	// addition to the content as of the flush. If there are no more subsets than that,
	// all are built, and others with a torn write.
	PerFlush int
	Seed     uint64
}

// epoch is what happened between two flushes.
type epoch struct {
	writes []Event
	marks  []string // all before its end
}

func (r *Recording) epochs() []epoch {
	epochs := []epoch{{}}
	var marks []string
	for _, event := range r.Events {
		last := &epochs[len(epochs)-1]
		switch event.Kind {
		case Flush:
			last.marks = slices.Clone(marks)
			epochs = append(epochs, epoch{})
		case Mark:
			marks = append(marks, event.Label)
		default:
			last.writes = append(last.writes, event)
		}
	}
	epochs[len(epochs)-1].marks = marks
	return epochs
}

// States lists the states that a choice has.
func (r *Recording) States(choice Choice) iter.Seq[State] {
	return func(yield func(State) bool) {
		number := 0
		epochs := r.epochs()
		for flushes, e := range epochs {
			for _, state := range r.statesOf(e, choice, uint64(flushes), flushes == len(epochs)-1) {
				state.Number, state.Flushes, state.Marks = number, flushes, e.marks
				number++
				if !yield(state) {
					return
				}
			}
		}
	}
}

// builder builds states in the order of their flushes.
type builder struct {
	recording *Recording
	epochs    []epoch
	base      *Image // as of a flush
	flushes   int    // up to base
}

func newBuilder(r *Recording) *builder {
	return &builder{recording: r, epochs: r.epochs(), base: r.Base.Flat()}
}

// build returns the content of a state. It is invalid after the next call.
func (b *builder) build(state State) (*Image, error) {
	if state.Flushes < b.flushes {
		*b = *newBuilder(b.recording)
	}
	if state.Flushes >= len(b.epochs) || state.Unflushed != len(b.epochs[state.Flushes].writes) {
		return nil, fmt.Errorf("%s is of another recording", state)
	}
	for ; b.flushes < state.Flushes; b.flushes++ {
		for _, write := range b.epochs[b.flushes].writes {
			b.base.apply(write)
		}
	}
	image, sector := b.base.Over(), b.recording.Sector
	for _, index := range state.Survived {
		write := b.epochs[state.Flushes].writes[index]
		if torn := state.Torn; torn != nil && torn.Write == index {
			write = write.part(int64(torn.From)*sector, int64(torn.To)*sector)
		}
		image.apply(write)
	}
	return image, nil
}

func (i *Image) apply(event Event) {
	if event.Kind == Zero {
		i.zero(event.Offset, event.Length)
		return
	}
	i.write(event.Data, event.Offset)
}

// part is the part of a write between two of its bytes.
func (e Event) part(from, to int64) Event {
	from, to = min(from, e.Length), min(to, e.Length)
	part := Event{Kind: e.Kind, Offset: e.Offset + from, Length: to - from}
	if e.Data != nil {
		part.Data = e.Data[from:to]
	}
	return part
}

// statesOf chooses the states between two flushes: none of the writes, then subsets.
func (r *Recording) statesOf(e epoch, choice Choice, flushes uint64, last bool) []State {
	random := rand.New(rand.NewPCG(choice.Seed, flushes))
	states := []State{{Unflushed: len(e.writes)}}
	seen := map[string]bool{states[0].key(): true}
	add := func(s State) {
		s.Unflushed = len(e.writes)
		if key := s.key(); !seen[key] && len(states) <= choice.PerFlush {
			seen[key] = true
			states = append(states, s)
		}
	}
	for _, subset := range subsets(len(e.writes), choice.PerFlush, random) {
		if len(subset) < len(e.writes) || last { // else it is the content as of the next flush
			add(State{Survived: subset})
		}
	}
	// Each write that can be torn is, in many places, as long as states are missing.
	for try := 0; try < 8*choice.PerFlush && len(states) <= choice.PerFlush; try++ {
		if torn, ok := r.tear(e, random); ok {
			add(torn)
		}
	}
	return states
}

// subsets returns all subsets of n writes if they are no more than limit, but the empty
// one. Otherwise it returns fewer than limit, of all sizes: a disk that writes in order,
// one that does not, and one that lost or wrote a single write. The rest is for torn writes.
func subsets(n, limit int, random *rand.Rand) [][]int {
	if n == 0 {
		return nil
	}
	var found [][]int
	if n < 16 && 1<<n-1 <= limit {
		for mask := 1; mask < 1<<n; mask++ {
			found = append(found, choose(n, func(i int) bool { return mask&(1<<i) != 0 }))
		}
		return found
	}
	found = append(found, choose(n, func(int) bool { return true }))
	for turn := range limit * 3 / 4 {
		switch one := random.IntN(n); turn % 5 {
		case 0: // in order
			found = append(found, choose(n, func(i int) bool { return i <= one }))
		case 1: // all but one
			found = append(found, choose(n, func(i int) bool { return i != one }))
		case 2: // one alone
			found = append(found, []int{one})
		default:
			share := []float64{0.5, 0.2, 0.8}[random.IntN(3)]
			found = append(found, choose(n, func(int) bool { return random.Float64() < share }))
		}
	}
	return found
}

func choose(n int, has func(int) bool) []int {
	var chosen []int
	for i := range n {
		if has(i) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// tear is a state with a torn write among a subset of the others.
func (r *Recording) tear(e epoch, random *rand.Rand) (State, bool) {
	large := choose(len(e.writes), func(i int) bool { return e.writes[i].Length > r.Sector })
	if len(large) == 0 {
		return State{}, false
	}
	torn := Tear{Write: large[random.IntN(len(large))]}
	sectors := int((e.writes[torn.Write].Length + r.Sector - 1) / r.Sector)
	if cut := 1 + random.IntN(sectors-1); random.IntN(2) == 0 {
		torn.To = cut
	} else {
		torn.From, torn.To = cut, sectors
	}
	keep := random.IntN(3)
	return State{Torn: &torn, Survived: choose(len(e.writes), func(i int) bool {
		return i == torn.Write || keep == 0 && i < torn.Write || keep == 1 && random.IntN(2) == 0
	})}, true
}

func (s State) key() string {
	if s.Torn == nil {
		return fmt.Sprint(s.Survived)
	}
	return fmt.Sprint(s.Survived, *s.Torn)
}
