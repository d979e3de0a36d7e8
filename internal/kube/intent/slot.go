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
	writerAnnotation = "holdfast.dev/writer" // another value for each write
	helpAnnotation   = "holdfast.dev/about"
	help             = "Volumes that are being created. Removing an entry by hand may leave its volume behind."
)

// firstNumber is the number of the first slot. Releases before the log read numbers below
// 2^31 only and ignore greater ones, whose entries they would misread. They wrote shards:
// objects whose entries are intents without an envelope.
const firstNumber = 10_000_000_000

// slot is one ConfigMap: a shard of an earlier release or a part of the log.
type slot struct {
	name   string
	node   string             // whose store it is of; "" for that of a central process
	shard  bool               // an earlier release wrote it
	object *corev1.ConfigMap  // as the API server last returned it; replaced, never changed; nil if it does not exist
	all    map[string]*record // by entry
	// stale says that the outcome of a write is unknown, so that the write may still
	// arrive. Another write of the object prevents that.
	stale  bool
	signed bool // this process has written to it since Load listed it
	alone  bool // it was empty before its last write
	shared bool // the process of another store uses its parts
}

// digest returns a hash that is short enough for names and labels; a driver's and a
// node's name together may be too long.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:10])
}

// Prefix begins the names of the ConfigMaps of a driver's store, which end in a
// number. They contain the whole name of a node, after a prefix of fixed length, so that
// a rule of admission can compare it and no two stores share a name.
func Prefix(driver, node string) string {
	prefix := namePrefix + digest(driver) + "-"
	if node != "" {
		prefix += node + "-"
	}
	return prefix
}

// earlierPrefix is the prefix of the names that the first releases wrote.
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

func (o Options) slotName(index int) string {
	return Prefix(o.Driver, o.Node) + strconv.Itoa(firstNumber+index)
}

func (o Options) newObject(s *slot) *corev1.ConfigMap {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:        s.name,
			Labels:      map[string]string{storeLabel: label(o.Driver, s.node), managedByLabel: "holdfast"},
			Annotations: map[string]string{driverAnnotation: o.Driver, helpAnnotation: help},
		},
	}
	if s.node != "" {
		object.Annotations[nodeAnnotation] = s.node
	}
	return object
}

// slotOf returns the slot of an object; ok is false for an object of another driver,
// and for one whose name does not match its annotations: a rule of admission protects
// only the name from other nodes.
func (o Options) slotOf(object *corev1.ConfigMap) (found *slot, ok bool) {
	node := object.Annotations[nodeAnnotation]
	number, named := strings.CutPrefix(object.Name, Prefix(o.Driver, node))
	if !named {
		number, named = strings.CutPrefix(object.Name, earlierPrefix(o.Driver, node))
	}
	at, err := strconv.ParseUint(number, 10, 63)
	if !named || err != nil || object.Annotations[driverAnnotation] != o.Driver {
		return nil, false
	}
	return &slot{name: object.Name, node: node, shard: at < firstNumber}, true
}

// owns reports whether all intents of a slot are this process's to complete.
func (o Options) owns(s *slot) bool { return !o.Observer && (o.Node == "" || s.node == o.Node) }

// logs reports whether the slot is a part of this process's own log.
func (o Options) logs(s *slot) bool { return s.node == o.Node && !s.shard }

// parts are the shared parts of intents in an object.
func parts(object *corev1.ConfigMap) map[string][]byte {
	if object == nil {
		return nil
	}
	return object.BinaryData
}

func data(object *corev1.ConfigMap) map[string]string {
	if object == nil {
		return nil
	}
	return object.Data
}

func version(object *corev1.ConfigMap) string {
	if object == nil {
		return ""
	}
	return object.ResourceVersion
}
