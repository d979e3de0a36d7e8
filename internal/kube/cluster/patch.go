package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Op is one operation of a JSON patch (RFC 6902).
type Op struct {
	Op, Path string
	Value    any // unused by remove
}

// MarshalJSON writes a value even when it is null, except for remove.
func (o Op) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"op": o.Op, "path": o.Path}
	if o.Op != "remove" {
		fields["value"] = o.Value
	}
	return json.Marshal(fields)
}

// Pointer is the JSON pointer (RFC 6901) of the given steps, escaped.
func Pointer(steps ...string) string {
	var text strings.Builder
	for _, step := range steps {
		text.WriteByte('/')
		text.WriteString(strings.ReplaceAll(strings.ReplaceAll(step, "~", "~0"), "/", "~1"))
	}
	return text.String()
}

// Test fails the patch unless the path has the value.
func Test(value any, path ...string) Op { return Op{Op: "test", Path: Pointer(path...), Value: value} }

// Add adds a member or element, or replaces a member.
func Add(value any, path ...string) Op { return Op{Op: "add", Path: Pointer(path...), Value: value} }

// Remove removes a value that must exist.
func Remove(path ...string) Op { return Op{Op: "remove", Path: Pointer(path...)} }

// TestVersion fails the patch unless the object is still the one of that
// resourceVersion.
func TestVersion(version string) Op { return Test(version, "metadata", "resourceVersion") }

// JSONPatch encodes operations for types.JSONPatchType.
func JSONPatch(ops ...Op) []byte { return encode(ops) }

// MergePatch encodes a change for types.MergePatchType; a nil member removes.
func MergePatch(change any) []byte { return encode(change) }

// encode panics on an error: the plain values of patches cannot cause one, so that an
// error is a bug.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encode a patch: %v", err))
	}
	return text
}

// SetLabel returns the operation that sets a label of an object. Guard it with TestVersion: an
// object without labels gets this one alone.
func SetLabel(object Object, key, value string) Op {
	if object.GetLabels() == nil {
		return Add(map[string]string{key: value}, "metadata", "labels")
	}
	return Add(value, "metadata", "labels", key)
}

// AddFinalizers returns the operations that add missing finalizers to an object; nil if
// none is missing. If the list is empty, an operation replaces it, guarded by the
// object's resourceVersion.
func AddFinalizers(object Object, finalizers ...string) []Op {
	has := object.GetFinalizers()
	var missing []string
	for _, f := range finalizers {
		if !slices.Contains(has, f) && !slices.Contains(missing, f) {
			missing = append(missing, f)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if len(has) == 0 {
		return []Op{TestVersion(object.GetResourceVersion()), Add(missing, "metadata", "finalizers")}
	}
	var ops []Op
	for _, f := range missing {
		ops = append(ops, Add(f, "metadata", "finalizers", "-"))
	}
	return ops
}

// RemoveFinalizers returns the operations that remove finalizers; nil if the object has
// none of them. Each is guarded by a test that the finalizer is still at its index: if
// another client has changed the list, the whole patch fails and the caller makes a new
// one from the new state.
func RemoveFinalizers(object Object, finalizers ...string) []Op {
	has := object.GetFinalizers()
	var ops []Op
	for i := len(has) - 1; i >= 0; i-- { // from the end, so that the indexes stay valid
		if slices.Contains(finalizers, has[i]) {
			index := fmt.Sprint(i)
			ops = append(ops, Test(has[i], "metadata", "finalizers", index), Remove("metadata", "finalizers", index))
		}
	}
	return ops
}
