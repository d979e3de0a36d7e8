// Package convert copies messages of one API version to those of another, by the
// names of their fields. Both APIs of csi-proxy serve their older versions with it.
package convert

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Names maps the names of fields in one version to those in another.
type Names map[protoreflect.Name]protoreflect.Name

// Inverse returns the names for the opposite direction.
func (n Names) Inverse() Names {
	inverse := make(Names, len(n))
	for from, to := range n {
		inverse[to] = from
	}
	return inverse
}

// NewMessage returns an empty message of a generated type.
func NewMessage(of protoreflect.MessageDescriptor) proto.Message {
	generated, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		panic(err) // generated code registers its types before main
	}
	return generated.New().Interface()
}

// Method describes a unary call, as protoc would generate it. request makes an empty
// request; answer serves it, with the server that was registered.
func Method(
	service, name string, request func() any, answer func(ctx context.Context, server, request any) (any, error),
) grpc.MethodDesc {
	full := "/" + service + "/" + name
	handler := func(server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		message := request()
		if err := decode(message); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, message any) (any, error) { return answer(ctx, server, message) }
		if interceptor == nil {
			return call(ctx, message)
		}
		return interceptor(ctx, message, &grpc.UnaryServerInfo{Server: server, FullMethod: full}, call)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

// Message copies the fields of a message to those of the same name, or of the name
// in renamed, in a message of another version. A field that the other message
// lacks, or has in a form that cannot be converted, is left out. A number of 32 bits
// converts to its decimal text and to a number of 64 bits, and the text to the
// number. A text that is not a number of 32 bits, and a number that an enumeration
// lacks, are errors. They wrap no sentinel: in a request the caller is at fault, in an
// answer the server.
func Message(from, to proto.Message, renamed Names) error {
	return copyFields(from.ProtoReflect(), to.ProtoReflect(), renamed)
}

func copyFields(from, to protoreflect.Message, renamed Names) error {
	fields := from.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := field.Name()
		if other, ok := renamed[name]; ok {
			name = other
		}
		target := to.Descriptor().Fields().ByName(name)
		if target == nil || !Converts(field, target) || !from.Has(field) && field.Kind() == target.Kind() {
			continue // an empty text is converted: it is not a number
		}
		if err := copyField(from, to, field, target); err != nil {
			return err
		}
	}
	return nil
}

// Converts reports whether a field can be converted to the other.
func Converts(field, target protoreflect.FieldDescriptor) bool {
	if field.IsMap() || target.IsMap() {
		return field.IsMap() && target.IsMap() &&
			Converts(field.MapKey(), target.MapKey()) && Converts(field.MapValue(), target.MapValue())
	}
	return field.Cardinality() == target.Cardinality() && (field.Kind() == target.Kind() || widens(field, target) ||
		numberAndText(field, target) || numberAndText(target, field))
}

func widens(field, target protoreflect.FieldDescriptor) bool {
	return field.Kind() == protoreflect.Uint32Kind && target.Kind() == protoreflect.Int64Kind
}

func numberAndText(number, text protoreflect.FieldDescriptor) bool {
	return number.Kind() == protoreflect.Uint32Kind && text.Kind() == protoreflect.StringKind
}

func copyField(from, to protoreflect.Message, field, target protoreflect.FieldDescriptor) (err error) {
	switch {
	case field.IsMap():
		entries := to.Mutable(target).Map()
		from.Get(field).Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			var converted protoreflect.Value
			if converted, err = convert(key.Value(), field.MapKey(), target.MapKey(), nil); err != nil {
				return false
			}
			if value, err = convert(value, field.MapValue(), target.MapValue(), entries.NewValue); err == nil {
				entries.Set(converted.MapKey(), value)
			}
			return err == nil
		})
		return err
	case field.IsList():
		source, list := from.Get(field).List(), to.Mutable(target).List()
		for i := range source.Len() {
			value, err := convert(source.Get(i), field, target, list.NewElement)
			if err != nil {
				return err
			}
			list.Append(value)
		}
		return nil
	}
	value, err := convert(from.Get(field), field, target, func() protoreflect.Value { return to.NewField(target) })
	if err == nil {
		to.Set(target, value)
	}
	return err
}

// convert converts one value; empty makes an empty message of the target's type.
func convert(
	value protoreflect.Value, field, target protoreflect.FieldDescriptor, empty func() protoreflect.Value,
) (protoreflect.Value, error) {
	switch {
	case widens(field, target):
		return protoreflect.ValueOfInt64(int64(value.Uint())), nil //nolint:gosec // it has 32 bits
	case numberAndText(field, target):
		return protoreflect.ValueOfString(strconv.FormatUint(value.Uint(), 10)), nil
	case numberAndText(target, field):
		number, err := strconv.ParseUint(value.String(), 10, 32)
		if err != nil {
			return value, fmt.Errorf("%s %.40q is not a number from 0 to 4294967295", field.Name(), value.String())
		}
		return protoreflect.ValueOfUint32(uint32(number)), nil
	case field.Kind() == protoreflect.MessageKind:
		converted := empty()
		return converted, copyFields(value.Message(), converted.Message(), nil)
	case field.Kind() == protoreflect.EnumKind && field.Enum().Values().ByNumber(value.Enum()) == nil:
		return value, fmt.Errorf("this version lacks %s %d", field.Name(), value.Enum())
	}
	return value, nil
}
