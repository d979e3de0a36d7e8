package intent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names and labels of the objects.
const (
	namePrefix       = "holdfast-intents-"
	storeLabel       = "holdfast.dev/intents"
	managedByLabel   = "app.kubernetes.io/managed-by"
	driverAnnotation = "holdfast.dev/driver"
	nodeAnnotation   = "holdfast.dev/node"
	writerAnnotation = "holdfast.dev/writer" // another value for each process
	helpAnnotation   = "holdfast.dev/about"
	help             = "Volumes that are being made. Each entry is removed when its PersistentVolume exists or its volume is gone; " +
		"an entry taken out by hand may leave a volume behind."
)

// shard is one ConfigMap. It belongs to the writer, apart from object, which is
// guarded by the Store's lock and replaced, never changed.
type shard struct {
	name   string
	node   string            // whose store it is of; "" for that of a central process
	object *corev1.ConfigMap // as the API server last returned it; nil if it does not exist
	stale  bool              // the outcome of a write is unknown: read the object before the next
}

// digest returns a hash that is short enough for names and labels; a driver's and a
// node's name together may be too long.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:10])
}

// Prefix begins the names of the ConfigMaps of a driver's store, which end in a
// number. They contain the whole name of a node, after a prefix of fixed length, so that a rule of admission can compare it and no two stores share a name.
func Prefix(driver, node string) string {
	prefix := namePrefix + digest(driver) + "-"
	if node != "" {
		prefix += node + "-"
	}
	return prefix
}

// earlierPrefix is the prefix of the names that earlier releases wrote.
func earlierPrefix(driver, node string) string { return namePrefix + label(driver, node) + "-" }

func label(driver, node string) string { return digest(driver + "\x00" + node) }

// selector is for the objects whose intents this process may complete: a central
// process those of all stores, a node its own and those of central processes.
func (o Options) selector() string {
	if o.Node == "" {
		return storeLabel
	}
	return fmt.Sprintf("%s in (%s,%s)", storeLabel, label(o.Driver, o.Node), label(o.Driver, ""))
}

func (o Options) newObject(s *shard) *corev1.ConfigMap {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:        s.name,
			Labels:      map[string]string{storeLabel: label(o.Driver, s.node), managedByLabel: "holdfast"},
			Annotations: map[string]string{driverAnnotation: o.Driver, helpAnnotation: help},
		},
		Data: map[string]string{},
	}
	if s.node != "" {
		object.Annotations[nodeAnnotation] = s.node
	}
	return object
}

func (s *shard) holds(key string) bool {
	if s.object == nil {
		return false
	}
	_, found := s.object.Data[key]
	return found
}

func (s *shard) bytes() int {
	total := 0
	if s.object != nil {
		for key, text := range s.object.Data {
			total += len(key) + len(text)
		}
	}
	return total
}

// shardOf returns the shard of an object; ok is false for an object of another driver,
// and for one whose name does not match its annotations: a rule of admission protects
// only the name from other nodes.
func (o Options) shardOf(object *corev1.ConfigMap) (found *shard, ok bool) {
	node := object.Annotations[nodeAnnotation]
	number, named := strings.CutPrefix(object.Name, Prefix(o.Driver, node))
	if !named {
		number, named = strings.CutPrefix(object.Name, earlierPrefix(o.Driver, node))
	}
	_, err := strconv.ParseUint(number, 10, 31)
	if !named || err != nil || object.Annotations[driverAnnotation] != o.Driver {
		return nil, false
	}
	return &shard{name: object.Name, node: node, object: object}, true
}

// isOwn reports whether new intents may go to an object: every rule of admission
// permits this process to write to objects of that name.
func (o Options) isOwn(s *shard) bool {
	return s.node == o.Node && strings.HasPrefix(s.name, Prefix(o.Driver, o.Node))
}
