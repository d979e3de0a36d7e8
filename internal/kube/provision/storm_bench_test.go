package provision

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// BenchmarkIntents_written counts the writes of intents and their bytes in etcd for each
// claim: of 1,000 claims that are made at once and wait for a pod's node, of 1,000 that
// are made one after another, and of those of a cluster with 5,000 topologies.
//
//	go test ./internal/kube/provision -run '^$' -bench Intents -benchtime 1x
func BenchmarkIntents_written(b *testing.B) {
	const claims = 1000
	for name, run := range map[string]func(b *testing.B, w *world){
		"at once": func(_ *testing.B, w *world) {
			w.run(func(env *cluster.Env, o *Options) { env.Workers, o.ForgetAfter = 100, 0 })
			w.claims(0, claims)
		},
		"one by one": func(_ *testing.B, w *world) {
			w.run(func(_ *cluster.Env, o *Options) { o.ForgetAfter = 0 })
			for i := range claims {
				w.claims(i, 1)
			}
		},
		"at once, 5,000 topologies": func(_ *testing.B, w *world) {
			w.withTopology()
			w.Driver.Creation.Answer = firstPreferred
			w.run(func(env *cluster.Env, o *Options) {
				env.Workers, o.ForgetAfter, o.Topology = 100, 0, fixed{many(1234)}
			})
			w.claims(0, claims)
		},
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				w := newWorld(b, newClass())
				run(b, w)
				writes, bytes := w.intentWrites()
				b.ReportMetric(float64(writes)/claims, "writes/claim")
				b.ReportMetric(float64(bytes)/claims, "B/claim")
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
// fields that the API server manages. A deletion writes the key.
func stored(t testing.TB, write apiserver.Request) int {
	const (
		metadata = 450 // uid, times and the managed fields of the metadata
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
	for entry := range object.Data {
		size += len(entry) + field
	}
	return size
}
