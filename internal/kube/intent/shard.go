package intent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
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
	help             = "Volumes that are being made. Each entry is removed when its PersistentVolume exists or its volume is gone; an entry taken out by hand may leave a volume behind."
)

// shard is one ConfigMap. It belongs to the writer, apart from object, which is
// guarded by the Store's lock and replaced, never changed.
type shard struct {
	name   string
	object *corev1.ConfigMap // as the API server last answered; nil if there is none
	stale  bool              // a write ended unknown: read it before the next
}

// storeID tells the objects of one store from those of others. Driver and node
// names are too long for a label together.
func storeID(driver, node string) string {
	sum := sha256.Sum256([]byte(driver + "\x00" + node))
	return hex.EncodeToString(sum[:10])
}

func (o Options) shardName(number int) string {
	return fmt.Sprintf("%s%s-%d", namePrefix, storeID(o.Driver, o.Node), number)
}

func (o Options) selector() string { return storeLabel + "=" + storeID(o.Driver, o.Node) }

func (o Options) newObject(name string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{storeLabel: storeID(o.Driver, o.Node), managedByLabel: "holdfast"},
			Annotations: map[string]string{driverAnnotation: o.Driver, helpAnnotation: help},
		},
		Data: map[string]string{},
	}
	if o.Node != "" {
		object.Annotations[nodeAnnotation] = o.Node
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

// with is the object after some changes.
func (s *shard) with(o Options, changes map[string]*change) *corev1.ConfigMap {
	next := o.newObject(s.name)
	if s.object != nil {
		next = s.object.DeepCopy()
	}
	data := map[string]string{}
	maps.Copy(data, next.Data)
	for key, c := range changes {
		if c.text == "" {
			delete(data, key)
			continue
		}
		data[key] = c.text
	}
	next.Data = data
	return next
}

// number is the running number in a shard's name; ok is false for a name that
// this Store would not give.
func (o Options) number(name string) (number int, ok bool) {
	rest, found := strings.CutPrefix(name, namePrefix+storeID(o.Driver, o.Node)+"-")
	if !found {
		return 0, false
	}
	_, err := fmt.Sscanf(rest, "%d", &number)
	return number, err == nil && o.shardName(number) == name
}
