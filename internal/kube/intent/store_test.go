package intent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

// server is the API server's part for ConfigMaps: versions, conflicts, counts.
type server struct {
	mu      sync.Mutex
	objects map[string]*corev1.ConfigMap
	version int
	writes  int
	fail    func(verb string) error // after the write was done, if it says so
	lose    bool                    // the write is done although it fails
	refuse  func(name string) error // updates of an object
	// before is called for each update, without the lock.
	before  func(object *corev1.ConfigMap) error
	arrived chan struct{} // receives from each update that waits for release
	release chan struct{}
	// unfenced ignores the versions that writes require.
	unfenced bool
}

func newServer() *server { return &server{objects: map[string]*corev1.ConfigMap{}} }

func (s *server) stamp(object *corev1.ConfigMap) *corev1.ConfigMap {
	s.version++
	s.writes++
	stored := object.DeepCopy()
	stored.ResourceVersion = strconv.Itoa(s.version)
	s.objects[stored.Name] = stored
	return stored.DeepCopy()
}

func (s *server) trouble(verb string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(verb)
}

func (s *server) Create(_ context.Context, object *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.trouble("create")
	switch {
	case err != nil && !s.lose:
		return nil, err
	case s.objects[object.Name] != nil:
		return nil, apierrors.NewAlreadyExists(configMaps, object.Name)
	}
	object.UID = "uid"
	return s.stamp(object), err
}

func (s *server) Update(ctx context.Context, object *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	arrived, release, before := s.arrived, s.release, s.before
	s.arrived, s.release = nil, nil
	s.mu.Unlock()
	if arrived != nil { // in flight, even if the sender ends
		close(arrived)
		<-release
	}
	if before != nil {
		if err := before(object); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.trouble("update")
	if err == nil && s.refuse != nil {
		err = s.refuse(object.Name)
	}
	now := s.objects[object.Name]
	switch {
	case err != nil && !s.lose:
		return nil, err
	case now == nil:
		return nil, apierrors.NewNotFound(configMaps, object.Name)
	case now.ResourceVersion != object.ResourceVersion && !s.unfenced:
		return nil, apierrors.NewConflict(configMaps, object.Name, errors.New("changed"))
	}
	return s.stamp(object), err
}

func (s *server) Delete(_ context.Context, name string, options metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.objects[name]
	switch {
	case now == nil:
		return apierrors.NewNotFound(configMaps, name)
	case now.ResourceVersion != *options.Preconditions.ResourceVersion && !s.unfenced:
		return apierrors.NewConflict(configMaps, name, errors.New("changed"))
	}
	s.writes++
	delete(s.objects, name)
	return nil
}

func (s *server) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[name] == nil {
		return nil, apierrors.NewNotFound(configMaps, name)
	}
	return s.objects[name].DeepCopy(), nil
}

func (s *server) List(_ context.Context, options metav1.ListOptions) (*corev1.ConfigMapList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, err
	}
	list := &corev1.ConfigMapList{}
	for _, object := range s.objects {
		if selector.Matches(labels.Set(object.Labels)) {
			list.Items = append(list.Items, *object.DeepCopy())
		}
	}
	return list, nil
}

// edit changes an entry, wherever it is.
func (s *server) edit(key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range s.objects {
		if _, found := object.Data[key]; found {
			object.Data[key] = text
		}
	}
}

// keys are the keys of all intents in all objects.
func (s *server) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, object := range s.objects {
		for entry := range object.Data {
			if !strings.HasSuffix(entry, changeSuffix) {
				keys = append(keys, entry)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// addShard adds an object as releases before the log wrote it.
func (s *server) addShard(name, node string, entries map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := Options{Driver: "d.example"}
	object := o.newObject(&slot{name: name, node: node})
	object.Data = entries
	s.stamp(object)
}

// entry is the text of an entry with an intent.
func entry(id, text string) string {
	return marshal(envelope{ID: id, Intent: []byte(`{"Text":"` + text + `"}`)})
}

type note struct{ Text string }

// merge keeps a text "saved".
func merge(stored, next note) note {
	if stored.Text == "saved" {
		return stored
	}
	return next
}

func open(t *testing.T, s *server, change ...func(*Options)) *Store[note] {
	t.Helper()
	const soon = time.Millisecond
	options := Options{ConfigMaps: s, Driver: "d.example", Window: soon, Spacing: soon, FlushAfter: soon, KeepEmpty: soon}
	for _, c := range change {
		c(&options)
	}
	return start(t, New(options, Kind[note]{NodeOf: func(n note) string { return n.Text }, Merge: merge}))
}

// start loads the intents, and runs the store until the test ends.
func start[T any](t *testing.T, store *Store[T]) *Store[T] {
	t.Helper()
	if err := store.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = store.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return store
}

func put(t *testing.T, s *Store[note], key, text string) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, note{text}); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestPut_outlivesTheProcess(t *testing.T) {
	api := newServer()
	first := open(t, api)
	put(t, first, "a", "1")
	put(t, first, "b", "2")
	put(t, first, "a", "3")
	second := open(t, api)
	if got := second.All(); !maps.Equal(got, map[string]note{"a": {"3"}, "b": {"2"}}) {
		t.Errorf("after a restart: %v", got)
	}
	other := open(t, api, func(o *Options) { o.Node = "n" })
	if other.Len() != 0 {
		t.Errorf("another node's store sees %v", other.All())
	}
}

func TestRemove_leavesNothingBehind(t *testing.T) {
	api := newServer()
	store := open(t, api)
	put(t, store, "a", "1")
	put(t, store, "b", "1")
	store.Remove("a")
	if _, found := store.Get("a"); found {
		t.Error("removed, and Get returns it")
	}
	if err := store.RemoveNow(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the object is deleted with its last intent", func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.objects) == 0
	})
	put(t, store, "c", "1")
	if got := api.keys(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("remaining: %v", got)
	}
}

func TestPut_manyShareAWrite(t *testing.T) {
	api := newServer()
	const window = 20 * time.Millisecond
	store := open(t, api, func(o *Options) { o.Window = window; o.FlushAfter = time.Hour })
	began := time.Now()
	var writing sync.WaitGroup
	for i := range 200 {
		writing.Go(func() {
			if _, err := store.Put(t.Context(), fmt.Sprint("k", i), note{"x"}); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	// A slow machine spreads them over more time, and so over more writes.
	most := max(20, int(time.Since(began)/window)+1)
	if store.Len() != 200 || len(api.keys()) != 200 || api.writes > most {
		t.Errorf("%d intents took %d writes, %d are stored", store.Len(), api.writes, len(api.keys()))
	}
	for i := range 200 {
		store.Remove(fmt.Sprint("k", i))
	}
	before, objects := api.writes, len(api.objects)
	for i := range objects {
		put(t, store, fmt.Sprint("next", i), strings.Repeat("x", carriedBytes))
	}
	if got := api.keys(); len(got) != objects || len(api.objects) != objects || api.writes != before+objects {
		t.Errorf("each write takes removals along: %d writes, %d objects, remaining %v", api.writes-before, len(api.objects), got)
	}
}

func TestPut_opensAnotherObjectWhenOneIsFull(t *testing.T) {
	api := newServer()
	store := open(t, api, func(o *Options) { o.SlotBytes = 200 })
	for i := range 20 {
		put(t, store, fmt.Sprint("k", i), strings.Repeat("x", 50))
	}
	for name, object := range api.objects {
		if size := bytesOf(object.Data); size > 200 {
			t.Errorf("%s has %d bytes", name, size)
		}
	}
	if again := open(t, api); again.Len() != 20 {
		t.Errorf("%d of 20 are found in %d objects", again.Len(), len(api.objects))
	}
	if _, err := store.Put(t.Context(), "big", note{strings.Repeat("x", 300)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an intent larger than an object: %v", err)
	}
}

func TestPut_twoProcessesDoNotUndoEachOther(t *testing.T) {
	api := newServer()
	var mu sync.Mutex
	var changed []string
	first := open(t, api, func(o *Options) {
		o.Changed = func(key string) { mu.Lock(); defer mu.Unlock(); changed = append(changed, key) }
	})
	second := open(t, api)
	put(t, first, "a", "1")
	put(t, second, "b", "2")
	put(t, first, "c", "3")
	if got := api.keys(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("stored: %v", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if _, found := first.Get("b"); !found || !slices.Equal(changed, []string{"b"}) {
		t.Errorf("the other's intent is found (%v), and Changed was called for %v", found, changed)
	}
}

func TestPut_saysWhenItIsNotDurable(t *testing.T) {
	api := newServer()
	down := true
	api.fail = func(string) error {
		if down {
			return errors.New("the API server is away")
		}
		return nil
	}
	store := open(t, api)
	if _, err := store.Put(t.Context(), "a", note{"1"}); err == nil || !strings.Contains(err.Error(), "is away") {
		t.Fatalf("got %v", err)
	}
	if _, found := store.Get("a"); found {
		t.Error("Get returns an intent that is not durable")
	}
	api.mu.Lock()
	down = false
	api.mu.Unlock()
	put(t, store, "a", "2")
	if intent, _ := store.Get("a"); intent.Text != "2" {
		t.Errorf("got %v", intent)
	}
}

func TestPut_aLostAnswerIsFoundOut(t *testing.T) {
	api := newServer()
	api.lose = true
	failing := true
	api.fail = func(verb string) error {
		if !failing || verb != "update" {
			return nil
		}
		failing = false
		return errors.New("connection reset")
	}
	var changed sync.Map
	store := open(t, api, func(o *Options) { o.Changed = func(key string) { changed.Store(key, true) } })
	if _, err := store.Put(t.Context(), "a", note{"1"}); err == nil {
		t.Fatal("the answer was lost")
	}
	put(t, store, "b", "2")
	if intent, found := store.Get("a"); !found || intent.Text != "1" {
		t.Errorf("the intent is durable and unknown: %v", intent)
	}
	if _, was := changed.Load("a"); !was {
		t.Error("Changed was not called")
	}
}

func TestReread_obeysWhoTookARecordOut(t *testing.T) {
	api := newServer()
	store := open(t, api)
	put(t, store, "a", "1")
	put(t, store, "b", "1")
	if _, found, err := store.Reread(t.Context(), "a"); !found || err != nil {
		t.Fatalf("untouched: %v, %v", found, err)
	}
	api.mu.Lock()
	for _, object := range api.objects {
		delete(object.Data, "a")
		api.stamp(object)
	}
	api.mu.Unlock()
	if _, found, err := store.Reread(t.Context(), "a"); found || err != nil {
		t.Errorf("taken out by hand: %v, %v", found, err)
	}
	eventually(t, "the other intent stays", func() bool { return slices.Equal(api.keys(), []string{"b"}) })
}

func TestLoad_leavesADamagedRecordAlone(t *testing.T) {
	api := newServer()
	put(t, open(t, api), "a", "1")
	api.mu.Lock()
	for _, object := range api.objects {
		object.Data["bad"] = "{"
	}
	api.mu.Unlock()
	store := open(t, api)
	put(t, store, "b", "1")
	if err := store.RemoveNow(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := api.keys(); !slices.Equal(got, []string{"b", "bad"}) {
		t.Errorf("remaining: %v", got)
	}
}

func TestRun_writesRemovalsBeforeItEnds(t *testing.T) {
	api := newServer()
	store := New(Options{ConfigMaps: api, Driver: "d", FlushAfter: time.Hour}, Kind[note]{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = store.Run(ctx) }()
	put(t, store, "a", "1")
	store.Remove("a")
	cancel()
	<-ended
	if got := api.keys(); len(got) != 0 {
		t.Errorf("remaining: %v", got)
	}
}

// TestLoad_outrunsAWriteOfTheProcessBefore: a process dies, or loses its lease,
// with a removal in flight; the next one has begun to act on the intent.
func TestLoad_outrunsAWriteOfTheProcessBefore(t *testing.T) {
	api := newServer()
	first := New(Options{ConfigMaps: api, Driver: "d.example", Window: time.Millisecond, Spacing: time.Millisecond, FlushAfter: time.Millisecond}, Kind[note]{})
	ctx, die := context.WithCancelCause(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = first.Run(ctx) }()
	put(t, first, "a", "1")
	put(t, first, "b", "1")
	arrived, release := make(chan struct{}), make(chan struct{})
	api.mu.Lock()
	api.arrived, api.release = arrived, release
	api.mu.Unlock()
	first.Remove("a")
	<-arrived
	second := open(t, api)
	die(ErrAbandoned)
	close(release)
	<-ended
	if got := api.keys(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("after the late write: %v", got)
	}
	put(t, second, "c", "1")
	if got := second.All(); !maps.Equal(got, map[string]note{"a": {"1"}, "b": {"1"}, "c": {"1"}}) {
		t.Errorf("the next process knows %v", got)
	}
}

func TestRun_writesNothingMoreWhenAnotherProcessActs(t *testing.T) {
	api := newServer()
	store := New(Options{ConfigMaps: api, Driver: "d", FlushAfter: time.Hour}, Kind[note]{})
	ctx, lose := context.WithCancelCause(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = store.Run(ctx) }()
	put(t, store, "a", "1")
	store.Remove("a")
	lose(ErrAbandoned)
	<-ended
	if got := api.keys(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("remaining: %v", got)
	}
}

func TestLoad_saysWhenTheIntentsCannotBeTakenOver(t *testing.T) {
	api := newServer()
	put(t, open(t, api), "a", "1")
	api.mu.Lock()
	api.fail = func(string) error { return errors.New("the API server is away") }
	api.mu.Unlock()
	if err := New(Options{ConfigMaps: api, Driver: "d.example"}, Kind[note]{}).Load(t.Context()); err == nil || !strings.Contains(err.Error(), "is away") {
		t.Errorf("got %v", err)
	}
}

// TestPut_thatFailsLeavesTheRemovalBeforeItDue: an intent was removed, and the
// next one of its key did not get through.
func TestPut_thatFailsLeavesTheRemovalBeforeItDue(t *testing.T) {
	api := newServer()
	var down atomic.Bool
	api.fail = func(string) error {
		if down.Load() {
			return errors.New("the API server is away")
		}
		return nil
	}
	store := open(t, api, func(o *Options) { o.FlushAfter = 50 * time.Millisecond })
	put(t, store, "a", "1")
	put(t, store, "b", "1")
	store.Remove("a")
	down.Store(true)
	if _, err := store.Put(t.Context(), "a", note{"2"}); err == nil {
		t.Fatal("the API server was away")
	}
	down.Store(false)
	eventually(t, "the removal is done after all", func() bool { return slices.Equal(api.keys(), []string{"b"}) })
}

// TestPut_ofAnIntentOnItsOwn: an intent, its change and its removal are a write each. The
// log keeps one empty object for the next intent, until the process ends.
func TestPut_ofAnIntentOnItsOwn(t *testing.T) {
	api := newServer()
	count := func() (writes, objects int) {
		api.mu.Lock()
		defer api.mu.Unlock()
		return api.writes, len(api.objects)
	}
	t.Run("while the process runs", func(t *testing.T) {
		store := open(t, api, func(o *Options) { o.KeepEmpty = time.Hour })
		for _, want := range []int{4, 3, 3} { // the first one creates the object
			before, _ := count()
			put(t, store, "a", strings.Repeat("1", 1000))
			put(t, store, "a", strings.Repeat("2", 1000))
			store.Remove("a")
			eventually(t, "no intent is stored", func() bool { return len(api.keys()) == 0 })
			if after, objects := count(); after-before != want || objects != 1 {
				t.Errorf("%d writes, want %d; %d objects remain", after-before, want, objects)
			}
		}
	})
	if _, objects := count(); objects != 0 {
		t.Errorf("%d objects remain when the process has ended", objects)
	}
}
