package provision

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// BenchmarkIntents_written counts the writes of intents and their bytes in etcd for each
// claim: of claims that are made at once with a fast driver and with a slow one, of those
// that are made one after another, of those whose intent is removed before the next claim is
// made, and of those of a cluster with 5,000 topologies.
//
//	go test ./internal/kube/provision -run '^$' -bench Intents -benchtime 1x
func BenchmarkIntents_written(b *testing.B) {
	atOnce := func(w *world, claims int) { w.claims(0, claims) }
	for _, c := range []struct {
		name   string
		claims int
		make   func(w *world, claims int)
		change func(*cluster.Env, *Options)
	}{
		{"at once", 1000, atOnce, func(env *cluster.Env, _ *Options) { env.Workers = 100 }},
		{"at once, each takes 2 s", 300, atOnce, func(env *cluster.Env, _ *Options) { env.Workers = 100 }},
		{"one by one", 200, func(w *world, claims int) {
			for i := range claims {
				w.claims(i, 1)
			}
		}, func(*cluster.Env, *Options) {}},
		{"on their own", 50, func(w *world, claims int) {
			for i := range claims {
				w.claims(i, 1)
				w.complete(i + 1)
			}
		}, func(_ *cluster.Env, o *Options) { o.ForgetAfter = 200 * time.Millisecond }},
		{"at once with 5,000 topologies", 100, atOnce, func(_ *cluster.Env, o *Options) { o.Topology = fixed{many(1234)} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				w := newWorld(b, newClass())
				if c.name == "at once with 5,000 topologies" {
					w.withTopology()
					w.Driver.Creation.Answer = firstPreferred
				}
				if c.name == "at once, each takes 2 s" {
					w.takes = 2 * time.Second
				}
				w.run(func(_ *cluster.Env, o *Options) { o.ForgetAfter = 0 }, c.change)
				c.make(w, c.claims)
				writes, bytes := w.intentWrites()
				b.ReportMetric(float64(writes)/float64(c.claims), "writes/claim")
				b.ReportMetric(float64(bytes)/float64(c.claims), "B/claim")
			}
		})
	}
}

// claims makes claims and waits for their PersistentVolumes.
func (w *world) claims(from, count int) {
	w.t.Helper()
	for i := range count {
		w.Add(newClaim(fmt.Sprint("c", from+i)))
	}
	for i := range count {
		w.saved(fmt.Sprint("pvc-uid-c", from+i))
	}
}

// intentWrites returns how many writes of intents there were, and how many bytes they
// wrote to etcd.
func (w *world) intentWrites() (writes, bytes int) {
	w.t.Helper()
	for _, write := range w.Writes() {
		if write.Resource == "configmaps" {
			writes, bytes = writes+1, bytes+stored(w.t, write)
		}
	}
	return writes, bytes
}

// stored returns the size of what a write puts into etcd: the object in protobuf, with the
// fields that the API server adds. A deletion writes the key.
func stored(t testing.TB, write apiserver.Request) int {
	const (
		metadata = 60  // uid and times
		managed  = 390 // managed fields, unless the write drops them
		field    = 8   // for each entry in the managed fields, with its key
		key      = 100
	)
	if write.Verb == "delete" {
		return key
	}
	object := &corev1.ConfigMap{}
	if err := json.Unmarshal(write.Body, object); err != nil {
		t.Fatal(err)
	}
	size := object.Size() + metadata + key
	if len(object.ManagedFields) > 0 {
		return size
	}
	size += managed
	for entry := range object.Data {
		size += len(entry) + field
	}
	return size
}
