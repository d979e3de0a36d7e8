package intent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// state is an intent of the model. Owner is unique for what one process put first, as the
// request of a volume is; marks are added later.
type state struct {
	Owner string
	Marks []string `json:",omitempty"`
	Node  string   `json:",omitempty"`
	Pad   string   `json:",omitempty"` // a large intent gets a slot of its own
	Part  string   `json:",omitempty"`
}

func stateKind() Kind[state] {
	return Kind[state]{
		NodeOf: func(s state) string { return s.Node },
		Merge: func(stored, next state) state {
			stored.Marks = slices.Compact(slices.Sorted(slices.Values(slices.Concat(stored.Marks, next.Marks))))
			return stored
		},
		Split: func(s state) (state, []byte) {
			if s.Part == "" {
				return s, nil
			}
			part := []byte(s.Part)
			s.Part = ""
			return s, part
		},
		Join: func(s state, part []byte) state { s.Part = string(part); return s },
	}
}

// wire is one process's connection to the server. Requests and answers get lost, requests
// arrive late, and the process dies at any of them.
type wire struct {
	*server
	world *world

	mu     sync.Mutex
	choose *rand.Rand
	calm   bool
	dead   bool
}

var errWire = errors.New("the connection broke")

// fate decides about one request. do makes it.
func (w *wire) fate(do func() error) error {
	w.mu.Lock()
	if w.dead {
		w.mu.Unlock()
		return errWire
	}
	happens := 99
	if !w.calm {
		happens = w.choose.IntN(24)
	}
	if happens >= 3 && happens < 6 {
		w.dead = true
	}
	w.mu.Unlock()
	switch happens {
	case 0, 3: // lost
		return errWire
	case 1, 4: // the answer is lost
		_ = do()
		return errWire
	case 2, 5: // late; a node does not mark what is of no concern to it
		if len(w.world.nodes) == 1 {
			w.world.later(do)
		}
		return errWire
	}
	return do()
}

func (w *wire) Create(ctx context.Context, object *corev1.ConfigMap, o metav1.CreateOptions) (made *corev1.ConfigMap, err error) {
	sent := object.DeepCopy()
	err = w.fate(func() (err error) { made, err = w.server.Create(ctx, sent, o); return err })
	return made, err
}

func (w *wire) Update(_ context.Context, object *corev1.ConfigMap, o metav1.UpdateOptions) (made *corev1.ConfigMap, err error) {
	sent := object.DeepCopy()
	err = w.fate(func() (err error) { made, err = w.server.Update(context.Background(), sent, o); return err })
	return made, err
}

func (w *wire) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return w.fate(func() error { return w.server.Delete(ctx, name, o) })
}

func (w *wire) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.ConfigMap, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errWire
	}
	return w.server.Get(ctx, name, o)
}

func (w *wire) List(ctx context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errWire
	}
	return w.server.List(ctx, o)
}

// process is a Store whose commits the model makes.
type process struct {
	*Store[state]
	wire *wire
}

// promise is what a process was told about a key: the intent is durable.
type promise struct {
	state
	loose bool // a removal was asked for, or an administrator removed the entry
}

// world is the model: a server, processes, and what they were told.
type world struct {
	t     *rapid.T
	api   *server
	nodes []string // the stores; more than one: the deployment changes

	mu   sync.Mutex
	late []func() error

	live  []*process
	told  map[string]*promise
	seen  map[string]string          // by key: the owner that was stored last
	gone  map[string]bool            // owners that were stored and are not any more
	marks map[string]map[string]bool // by owner: the marks that a process was told about
	// stale are owners whose intent was put after its removal, by a process that did not
	// know of it.
	stale   map[string]bool
	copied  map[string]bool // keys of which stored found copies
	counter int
	fail    func(error) // in place of the test's failure, if set
}

func newModel(t *rapid.T, nodes ...string) *world {
	return &world{
		t: t, api: newServer(), nodes: nodes, told: map[string]*promise{}, seen: map[string]string{}, gone: map[string]bool{},
		marks: map[string]map[string]bool{}, stale: map[string]bool{},
	}
}

func (w *world) failf(format string, arguments ...any) {
	err := fmt.Errorf(format, arguments...)
	if w.fail != nil {
		w.fail(err)
	}
	w.t.Fatal(err)
}

func (w *world) later(do func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, do)
}

func (w *world) key() string { return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(w.t, "key") }

// pick returns a live process; nil if there is none.
func (w *world) pick() *process {
	w.live = slices.DeleteFunc(w.live, func(p *process) bool { return p.wire.dead })
	if len(w.live) == 0 {
		return nil
	}
	return w.live[rapid.IntRange(0, len(w.live)-1).Draw(w.t, "process")]
}

func (w *world) open(calm bool) *process {
	seed := rapid.Uint64().Draw(w.t, "seed")
	p := &process{wire: &wire{server: w.api, world: w, choose: rand.New(rand.NewPCG(seed, 1)), calm: calm}}
	wait := func(label string) time.Duration {
		if rapid.Bool().Draw(w.t, label) {
			return time.Hour
		}
		return 1
	}
	flush, keep := wait("lazy"), wait("keeps an empty object")
	node := rapid.SampledFrom(w.nodes).Draw(w.t, "node")
	p.Store = New(Options{ConfigMaps: p.wire, Driver: "d.example", Node: node, FlushAfter: flush, KeepEmpty: keep, SlotBytes: 4000}, stateKind())
	if p.Load(context.Background()) != nil {
		return nil
	}
	return p
}

// commit commits, and notes what the caller of a put is told.
func (w *world) commit(p *process, last bool, asked map[string]*change[state]) {
	_ = p.commit(context.Background(), last)
	for key, c := range asked {
		select {
		case err := <-c.done:
			if err == nil && !p.wire.dead {
				w.promise(key, c.intent)
			}
		default:
			w.failf("the caller of a put of %s has no answer", key)
		}
	}
}

// promise notes that a process relies on an intent from now on.
func (w *world) promise(key string, s state) {
	if len(w.nodes) > 1 && w.stale[s.Owner] {
		return // the stores of other deployments are not compared
	}
	if told := w.told[key]; told != nil && !told.loose && told.Owner != s.Owner {
		w.failf("a process was told that %s is of %s; another one relies on %s", key, s.Owner, told.Owner)
	}
	w.told[key] = &promise{state: s, loose: w.removing(key) || w.stale[s.Owner]}
	if w.marks[s.Owner] == nil {
		w.marks[s.Owner] = map[string]bool{}
	}
	for _, mark := range s.Marks {
		w.marks[s.Owner][mark] = true
	}
}

// removing reports whether a live process still has to remove a key.
func (w *world) removing(key string) bool {
	return slices.ContainsFunc(w.live, func(p *process) bool {
		_, dead := p.dead[key]
		pending := p.pending[key]
		return dead || pending != nil && (pending.remove || pending.fresh)
	})
}

func (w *world) loosen(key string) {
	if told := w.told[key]; told != nil {
		told.loose = true
	}
}

// stored reads what is durable, as a process that starts now would.
func (w *world) stored() map[string]state {
	observer := New(Options{ConfigMaps: w.api, Driver: "d.example", Node: "observer"}, stateKind())
	all, err := observer.Unserved(context.Background(), func(string) (bool, error) { return false, nil })
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]state{}
	w.copied = map[string]bool{}
	for _, u := range all {
		if u.Err != nil {
			w.failf("%s in %s cannot be read: %v", u.Key, u.ConfigMap, u.Err)
		}
		if earlier, twice := found[u.Key]; twice {
			// Of two deployments, each may put an intent that another process removed.
			if len(w.nodes) == 1 || earlier.Owner != u.Intent.Owner && !w.stale[earlier.Owner] && !w.stale[u.Intent.Owner] {
				w.failf("%s is stored twice: %v and %v", u.Key, earlier, u.Intent)
			}
			w.copied[u.Key] = true
			if earlier.Owner == u.Intent.Owner || w.stale[u.Intent.Owner] {
				u.Intent.Owner = earlier.Owner
			}
			u.Intent.Marks = append(u.Intent.Marks, earlier.Marks...)
		}
		found[u.Key] = u.Intent
	}
	return found
}

// check compares what is stored with what processes were told.
func (w *world) check() {
	stored := w.stored()
	for key, owner := range w.seen {
		if stored[key].Owner != owner {
			w.gone[owner] = true
			delete(w.seen, key)
		}
	}
	for key, s := range stored {
		w.seen[key] = s.Owner
		if w.stale[s.Owner] {
			continue
		}
		if w.gone[s.Owner] {
			w.failf("%s of %s was removed and is stored again", key, s.Owner)
		}
		for mark := range w.marks[s.Owner] {
			if !slices.Contains(s.Marks, mark) {
				w.failf("%s of %s lacks mark %s: %v", key, s.Owner, mark, s.Marks)
			}
		}
	}
	for key, told := range w.told {
		if told.loose = told.loose || w.removing(key); told.loose {
			continue
		}
		if s, found := stored[key]; !found || s.Owner != told.Owner {
			w.failf("%s of %s was promised; stored: %v", key, told.Owner, s)
		}
	}
}

func (w *world) fresh(what string) string {
	w.counter++
	return fmt.Sprint(what, w.counter)
}

// ask puts an intent or, if the process has one, adds a mark.
func (w *world) ask(p *process, asked map[string]*change[state]) {
	key := w.key()
	next, known := p.Get(key)
	if !known {
		if _, elsewhere := w.stored()[key]; elsewhere && len(w.nodes) > 1 {
			return // the process of another deployment completes it
		}
		next = state{Owner: w.fresh("o"), Node: rapid.SampledFrom(w.nodes).Draw(w.t, "for")}
		if rapid.Bool().Draw(w.t, "large") {
			next.Pad = strings.Repeat("x", 1200)
		}
		next.Part = rapid.SampledFrom([]string{"", "p", "q"}).Draw(w.t, "part")
	}
	if told := w.told[key]; known && (told == nil || told.loose || told.Owner != next.Owner) {
		w.stale[next.Owner] = true
		if len(w.nodes) > 1 {
			w.loosen(key) // what another deployment has put is merged with it
		}
	}
	next.Marks = append(slices.Clone(next.Marks), w.fresh("m"))
	c, err := p.request(key, next)
	if err != nil {
		w.t.Fatal(err)
	}
	asked[key] = c
}

func (w *world) remove(p *process, now bool) {
	key := w.key()
	known, found := p.Get(key)
	if !found {
		return
	}
	w.loosen(key)
	if !now {
		p.Remove(key)
		return
	}
	done := make(chan error, 1)
	p.change(key, &change[state]{remove: true, at: time.Now(), done: done})
	w.commit(p, false, nil)
	if err := <-done; err == nil && !p.wire.dead {
		s, found := w.stored()[key]
		switch {
		case !found || len(w.nodes) > 1 && s.Owner != known.Owner:
		case len(w.nodes) > 1 && w.stale[s.Owner]:
			// A process of another deployment has put it again after an administrator had
			// removed the entry, and completes it.
		default:
			w.failf("%s is removed, and stored: %v", key, s)
		}
	}
}

// reread asks what the API server has, as before a decision that cannot be undone.
func (w *world) reread(p *process) {
	key := w.key()
	if _, known := p.Get(key); !known {
		return
	}
	current, err := p.current(context.Background(), key)
	if err != nil {
		return
	}
	if !current {
		done := make(chan error, 1)
		p.readers = append(p.readers, done)
		w.commit(p, false, nil)
		if <-done != nil {
			return
		}
	}
	s, found := p.Get(key)
	stored, is := w.stored()[key]
	if w.copied[key] || !found && len(w.nodes) > 1 {
		return // another deployment may have put another one
	}
	if found != is || found && (s.Owner != stored.Owner || !slices.Equal(s.Marks, stored.Marks)) {
		if !w.removing(key) {
			w.failf("read again: %v (%t); stored: %v (%t)", s, found, stored, is)
		}
	}
}

// edit removes an entry as the guide says.
func (w *world) edit() {
	key := w.key()
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.api.objects)) {
		object := w.api.objects[name]
		if _, found := object.Data[key]; found {
			w.loosen(key)
			delete(object.Data, key)
			w.api.stamp(object)
		}
	}
}

func (w *world) land() {
	w.mu.Lock()
	var do func() error
	if n := len(w.late); n > 0 {
		i := rapid.IntRange(0, n-1).Draw(w.t, "late")
		do = w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
	}
	w.mu.Unlock()
	if do != nil {
		_ = do()
	}
}

func (w *world) step() {
	p := w.pick()
	action := rapid.IntRange(0, 12).Draw(w.t, "action")
	if p == nil || action == 0 && len(w.live) < 2 {
		w.start()
		return
	}
	switch action {
	case 1, 2, 3, 4, 5:
		asked := map[string]*change[state]{}
		for range rapid.IntRange(1, 3).Draw(w.t, "puts") {
			w.ask(p, asked)
		}
		w.commit(p, false, asked)
	case 6, 7:
		w.remove(p, action == 7)
	case 8:
		w.commit(p, rapid.Bool().Draw(w.t, "last"), nil)
	case 9:
		w.reread(p)
	case 10:
		w.edit()
	case 11: // every other store counts as one that no process serves, although there may be one
		remover := p.Store
		if len(w.nodes) > 1 && rapid.Bool().Draw(w.t, "observes") {
			remover = New(Options{ConfigMaps: p.wire, Driver: "d.example", Observer: true}, stateKind())
		}
		_ = remover.RemoveLeft(context.Background(), func(string) (bool, error) { return false, nil })
	default:
		w.land()
	}
}

// start starts a process, which relies on what it finds.
func (w *world) start() {
	p := w.open(false)
	if p == nil || p.wire.dead {
		return
	}
	w.live = append(w.live, p)
	stored := w.stored()
	for key, s := range p.All() {
		if !w.copied[key] && (s.Owner != stored[key].Owner || !slices.Equal(s.Marks, stored[key].Marks)) {
			w.failf("a process that starts finds %v; stored: %v", s, stored[key])
		}
		w.promise(key, s)
	}
}

func (w *world) run(steps int) {
	for range steps {
		w.step()
		w.check()
	}
	for _, p := range w.live {
		p.wire.dead = true
	}
	for len(w.late) > 0 {
		w.land()
		w.check()
	}
	w.clear()
}

// clear starts a last process without faults for each store, and removes everything.
func (w *world) clear() {
	w.live = nil
	p := New(Options{ConfigMaps: w.api, Driver: "d.example", FlushAfter: 1}, stateKind())
	if err := p.Load(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	if got, want := len(p.All()), len(w.stored()); got != want {
		w.failf("the last process completes %d of %d intents", got, want)
	}
	for key := range p.All() {
		w.loosen(key)
		p.Remove(key)
	}
	if err := p.commit(context.Background(), true); err != nil {
		w.t.Fatal(err)
	}
	for name, object := range w.api.objects {
		w.failf("left: %s %v %v", name, object.Data, slices.Collect(maps.Keys(object.BinaryData)))
	}
}

// TestModel_noIntentIsLostOrRevived: processes of one store die at any write, two act at
// the same time, requests arrive late, answers get lost, an administrator removes entries.
func TestModel_noIntentIsLostOrRevived(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newModel(t, "").run(40) })
}

// TestModel_changesOfDeployment: the same with processes of nodes and central ones.
func TestModel_changesOfDeployment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newModel(t, "", "n1", "n2").run(40) })
}

// TestModel_findsAMissingFence: the model notices if the server ignores the versions that
// writes require.
func TestModel_findsAMissingFence(t *testing.T) {
	runs := rapid.Custom(func(t *rapid.T) (wrong error) {
		m := newModel(t, "")
		m.api.unfenced = true
		m.fail = func(err error) { panic(violation{err}) }
		defer func() {
			if found, ok := recover().(violation); ok {
				wrong = found.error
			}
		}()
		m.run(60)
		return nil
	})
	for seed := range 200 {
		if wrong := runs.Example(seed); wrong != nil {
			t.Logf("run %d: %v", seed, wrong)
			return
		}
	}
	t.Error("no run found that writes are not fenced")
}

// violation is what the model found.
type violation struct{ error }
