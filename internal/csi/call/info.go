package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// Fact is one value that a driver reports about itself.
type Fact struct {
	Service string `json:"service"`
	Call    string `json:"call"`
	Name    string `json:"name,omitempty"`
	Value   string `json:"value,omitempty"`
}

// Info calls every RPC of a driver whose request is empty: its name, whether
// it is ready, what its services can do, and which node it is on. Services that
// it does not have are reported as such. An error is one of the connection.
func Info(ctx context.Context, client *csiclient.Client) ([]Fact, error) {
	var facts []Fact
	for _, method := range Methods() {
		if method.descriptor.Input().Fields().Len() > 0 || method.Stream {
			continue
		}
		found, err := factsOf(ctx, client, method)
		if err != nil {
			return facts, err
		}
		facts = append(facts, found...)
	}
	return facts, nil
}

func factsOf(ctx context.Context, client *csiclient.Client, method Method) (facts []Fact, err error) {
	fact := func(name, value string) {
		facts = append(facts, Fact{Service: method.Service, Call: method.Name, Name: name, Value: value})
	}
	err = method.Call(ctx, client, method.Request(), func(answer proto.Message) error {
		describe("", answer.ProtoReflect(), fact)
		return nil
	})
	var failed *Error
	switch {
	case errors.As(err, &failed) && failed.Code == "Unimplemented":
		fact("", "not implemented")
	case errors.As(err, &failed) && (failed.Code == "Unavailable" && len(facts) == 0):
		return nil, err
	case failed != nil:
		fact("", failed.Error())
	case err != nil:
		return nil, err
	case len(facts) == 0:
		fact("", "(empty)")
	}
	return facts, nil
}

// describe reports a message's fields; the values of enumerations in a list, as
// capabilities are, on one line.
func describe(path string, message protoreflect.Message, fact func(name, value string)) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !message.Has(field) {
			continue
		}
		name := strings.TrimPrefix(path+"."+string(field.Name()), ".")
		value := message.Get(field)
		switch {
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			var names []string
			for j := range value.List().Len() {
				names = append(names, enumsOf(value.List().Get(j).Message())...)
			}
			fact(name, strings.Join(names, ", "))
		case field.IsMap():
			fact(name, entriesOf(value.Map()))
		case field.Kind() == protoreflect.MessageKind && strings.HasPrefix(string(field.Message().FullName()), "google.protobuf."):
			fact(name, scalar(value.Message().Interface()))
		case field.Kind() == protoreflect.MessageKind:
			describe(name, value.Message(), fact)
		default:
			fact(name, fmt.Sprint(value.Interface()))
		}
	}
}

// scalar is a message that JSON shows as a simple value, such as a BoolValue.
func scalar(message proto.Message) string {
	text, err := protojson.Marshal(message)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// enumsOf are the values of enumerations in a message and below.
func enumsOf(message protoreflect.Message) (names []string) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList() || field.IsMap():
		case field.Kind() == protoreflect.EnumKind:
			if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
				names = append(names, string(known.Name()))
			} else {
				names = append(names, fmt.Sprintf("unknown (%d)", value.Enum()))
			}
		case field.Kind() == protoreflect.MessageKind:
			names = append(names, enumsOf(value.Message())...)
		}
		return true
	})
	return names
}

func entriesOf(entries protoreflect.Map) string {
	var texts []string
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		texts = append(texts, key.String()+"="+value.String())
		return true
	})
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// Describe is a method as the command list shows it.
func (m Method) Describe() json.Marshaler { return description{m} }

type description struct{ method Method }

// MarshalJSON implements json.Marshaler.
func (d description) MarshalJSON() ([]byte, error) {
	m := d.method
	return json.Marshal(map[string]any{
		"service": m.Service, "name": m.Name, "alpha": m.Alpha, "stream": m.Stream,
		"request": m.RequestFields(), "answer": m.AnswerFields(),
	})
}
