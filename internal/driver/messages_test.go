package driver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// requests gives an empty message of every request type of CSI.
func requests(t testing.TB) []proto.Message {
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

// place is one text of a message, and how to change it.
type place struct {
	path  string
	field protoreflect.FieldDescriptor
	set   func(text string)
}

// fill sets every field of a message to something acceptable (of a oneof the
// last alone) and lists where it put texts.
func fill(message protoreflect.Message, path, text string) []place {
	var places []place
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if choice := field.ContainingOneof(); choice != nil && field != choice.Fields().Get(choice.Fields().Len()-1) {
			continue
		}
		places = append(places, fillField(message, field, join(path, string(field.Name())), text)...)
	}
	return places
}

func fillField(message protoreflect.Message, field protoreflect.FieldDescriptor, path, text string) []place {
	switch {
	case field.IsMap():
		set := func(text string) {
			message.Mutable(field).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString(text))
		}
		set(text)
		return []place{{path, field, set}}
	case field.IsList() && field.Kind() == protoreflect.MessageKind:
		return fill(message.Mutable(field).List().AppendMutable().Message(), path+"[0]", text)
	case field.IsList():
		list := message.Mutable(field).List()
		list.Append(protoreflect.ValueOfString(text))
		return []place{{path, field, func(text string) { list.Set(0, protoreflect.ValueOfString(text)) }}}
	case field.Kind() == protoreflect.MessageKind:
		return fill(message.Mutable(field).Message(), path, text)
	case field.Kind() == protoreflect.StringKind:
		set := func(text string) { message.Set(field, protoreflect.ValueOfString(text)) }
		set("/" + text)
		return []place{{path, field, set}}
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

// filled gives a complete request of each type with its places.
func filled(t testing.TB, text string) []complete {
	t.Helper()
	var all []complete
	for _, message := range requests(t) {
		all = append(all, complete{message, fill(message.ProtoReflect(), "", text)})
	}
	return all
}

type complete struct {
	message proto.Message
	places  []place
}

func (c complete) name() string { return string(c.message.ProtoReflect().Descriptor().Name()) }
