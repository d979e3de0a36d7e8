package call

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	csimessage "github.com/holdfast-csi/holdfast/internal/csi/message"
)

// JSON shows a message on one line or on many, without its secrets.
// Names are those of the specification.
func JSON(message proto.Message, lines bool) ([]byte, error) {
	text, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(csimessage.Shown(message))
	if err != nil {
		return nil, fmt.Errorf("show the answer: %w", err)
	}
	// protojson's blanks change from build to build on purpose.
	var out bytes.Buffer
	if lines {
		err = json.Indent(&out, text, "", "  ")
	} else {
		err = json.Compact(&out, text)
	}
	return out.Bytes(), err
}

// Template is an empty request with all its fields, as JSON in the order of
// the specification. Of fields that exclude each other it has the last.
func (m Method) Template() ([]byte, error) {
	var flat, out bytes.Buffer
	writeMessage(&flat, m.descriptor.Input())
	if err := json.Indent(&out, flat.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("a template of %s: %w", m.Name, err)
	}
	return out.Bytes(), nil
}

func writeMessage(out *bytes.Buffer, message protoreflect.MessageDescriptor) {
	out.WriteByte('{')
	comma := ""
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if choice := field.ContainingOneof(); choice != nil && field != choice.Fields().Get(choice.Fields().Len()-1) {
			continue
		}
		fmt.Fprintf(out, "%s%q:", comma, field.Name())
		comma = ","
		writeField(out, field)
	}
	out.WriteByte('}')
}

func writeField(out *bytes.Buffer, field protoreflect.FieldDescriptor) {
	switch {
	case field.IsMap():
		out.WriteString("{}")
	case field.IsList() && field.Kind() != protoreflect.MessageKind:
		out.WriteString("[]")
	case field.IsList():
		out.WriteByte('[')
		writeMessage(out, field.Message())
		out.WriteByte(']')
	case field.Kind() == protoreflect.MessageKind:
		writeMessage(out, field.Message())
	case field.Kind() == protoreflect.StringKind:
		out.WriteString(`""`)
	case field.Kind() == protoreflect.BoolKind:
		out.WriteString("false")
	case field.Kind() == protoreflect.EnumKind:
		fmt.Fprintf(out, "%q", field.Enum().Values().Get(0).Name())
	default:
		out.WriteByte('0')
	}
}
