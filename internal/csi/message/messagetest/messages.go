// Package messagetest makes complete requests of every type of CSI, for
// tests of rules for all of them.
package messagetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Requests returns an empty message of every request type of CSI.
func Requests(t testing.TB) []proto.Message {
	t.Helper()
	var messages []proto.Message
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(methods.Get(j).Input().FullName())
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, kind.New().Interface())
		}
	}
	if len(messages) < 30 {
		t.Fatalf("found %d request types only", len(messages))
	}
	return messages
}

// Text is one text of a message, and how to change it.
type Text struct {
	Path  string
	Field protoreflect.FieldDescriptor
	Set   func(text string)
}

// fill sets every field of a message to something acceptable (of a oneof the
// last alone) and lists where it put texts.
func fill(message protoreflect.Message, path, text string) []Text {
	var texts []Text
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if choice := field.ContainingOneof(); choice != nil && field != choice.Fields().Get(choice.Fields().Len()-1) {
			continue
		}
		name := string(field.Name())
		if path != "" {
			name = path + "." + name
		}
		texts = append(texts, fillField(message, field, name, text)...)
	}
	return texts
}

func fillField(message protoreflect.Message, field protoreflect.FieldDescriptor, path, text string) []Text {
	switch {
	case field.IsMap():
		set := func(text string) {
			message.Mutable(field).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString(text))
		}
		set(text)
		return []Text{{path, field, set}}
	case field.IsList() && field.Kind() == protoreflect.MessageKind:
		return fill(message.Mutable(field).List().AppendMutable().Message(), path+"[0]", text)
	case field.IsList():
		list := message.Mutable(field).List()
		list.Append(protoreflect.ValueOfString(text))
		return []Text{{path, field, func(text string) { list.Set(0, protoreflect.ValueOfString(text)) }}}
	case field.Kind() == protoreflect.MessageKind:
		return fill(message.Mutable(field).Message(), path, text)
	case field.Kind() == protoreflect.StringKind:
		set := func(text string) { message.Set(field, protoreflect.ValueOfString(text)) }
		set(Root() + text)
		return []Text{{path, field, set}}
	}
	message.Set(field, one(field))
	return nil
}

func one(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	}
	return protoreflect.ValueOfInt64(1)
}

// Root returns the root directory of the system on which the tests run.
func Root() string { return filepath.VolumeName(os.TempDir()) + string(filepath.Separator) }

// Filled returns a complete request of each type with its texts.
func Filled(t testing.TB, text string) []Complete {
	t.Helper()
	var all []Complete
	for _, message := range Requests(t) {
		all = append(all, Complete{message, fill(message.ProtoReflect(), "", text)})
	}
	return all
}

// Complete is a request with every field set.
type Complete struct {
	Message proto.Message
	Texts   []Text
}

// Name is that of the message.
func (c Complete) Name() string { return string(c.Message.ProtoReflect().Descriptor().Name()) }
