package call

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	csimessage "github.com/holdfast-csi/holdfast/internal/csi/message"
	"github.com/holdfast-csi/holdfast/internal/quantity"
)

// maximumElements bounds the lists that --set extends, so that a large index does not
// exhaust the memory.
const maximumElements = 4096

// set changes one field of a message. A path consists of names separated by dots. The
// element of a list is name[N], or name[] to append one. The key of a map follows the
// map's name. The value of a message is JSON.
func set(message protoreflect.Message, path, value string) error {
	name, rest, deeper := strings.Cut(path, ".")
	name, index, indexed := strings.Cut(name, "[")
	field := message.Descriptor().Fields().ByName(protoreflect.Name(name))
	if field == nil {
		field = message.Descriptor().Fields().ByJSONName(name)
	}
	switch {
	case field == nil:
		return fmt.Errorf("%s has no field %q; it has %s",
			message.Descriptor().Name(), name, strings.Join(fieldsOf(message.Descriptor()), ", "))
	case csimessage.IsSecret(field):
		return errors.New("a secret on the command line can be read by every process of this machine: use --secret KEY=@FILE")
	case field.IsMap():
		return setEntry(message, field, strings.TrimPrefix(path, name), value)
	case field.IsList():
		return setElement(message, field, index, indexed, rest, deeper, value)
	case indexed:
		return fmt.Errorf("%s is not a list", name)
	case deeper:
		if field.Kind() != protoreflect.MessageKind {
			return fmt.Errorf("%s has no fields", name)
		}
		return set(message.Mutable(field).Message(), rest, value)
	}
	parsed, err := parse(field, message.NewField(field), value)
	if err == nil {
		message.Set(field, parsed)
	}
	return err
}

// setEntry sets the entry of a map that .KEY or [KEY] after the map's name selects.
func setEntry(message protoreflect.Message, field protoreflect.FieldDescriptor, key, value string) error {
	switch {
	case strings.HasPrefix(key, "["):
		key = strings.TrimSuffix(key[1:], "]")
	case strings.HasPrefix(key, "."):
		key = key[1:]
	default:
		return fmt.Errorf("%s is a map: %s.KEY=VALUE", field.Name(), field.Name())
	}
	message.Mutable(field).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
	return nil
}

func setElement(message protoreflect.Message, field protoreflect.FieldDescriptor, index string, indexed bool, rest string, deeper bool, value string) error {
	list := message.Mutable(field).List()
	at := list.Len() // name and name[] add one
	if number := strings.TrimSuffix(index, "]"); indexed && number != "" {
		var err error
		if at, err = strconv.Atoi(number); err != nil || at < 0 || at >= maximumElements {
			return fmt.Errorf("%s[%s]: the index must be a number from 0 to %d", field.Name(), number, maximumElements-1)
		}
	}
	for list.Len() <= at {
		list.Append(list.NewElement())
	}
	if deeper {
		if field.Kind() != protoreflect.MessageKind {
			return fmt.Errorf("the elements of %s have no fields", field.Name())
		}
		return set(list.Get(at).Message(), rest, value)
	}
	parsed, err := parse(field, list.NewElement(), value)
	if err == nil {
		list.Set(at, parsed)
	}
	return err
}

// parse parses a value of the field's type. fresh is an empty value of that type.
func parse(field protoreflect.FieldDescriptor, fresh protoreflect.Value, text string) (protoreflect.Value, error) {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), nil
	case protoreflect.BoolKind:
		value, err := strconv.ParseBool(text)
		if err != nil {
			return fresh, fmt.Errorf("%q is neither true nor false", text)
		}
		return protoreflect.ValueOfBool(value), nil
	case protoreflect.EnumKind:
		return parseEnum(field.Enum(), text)
	case protoreflect.Int32Kind:
		value, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fresh, fmt.Errorf("%q is not a 32-bit number", text)
		}
		return protoreflect.ValueOfInt32(int32(value)), nil
	case protoreflect.Int64Kind:
		return parseNumber(fresh, text)
	case protoreflect.MessageKind:
		if err := protojson.Unmarshal([]byte(text), fresh.Message().Interface()); err != nil {
			return fresh, fmt.Errorf("want %s as JSON: %s", field.Message().Name(), tidy(err))
		}
		return fresh, nil
	}
	return fresh, fmt.Errorf("fields of type %s can be given in JSON only", field.Kind())
}

// parseNumber accepts integers and quantities: 10737418240, 10Gi.
func parseNumber(fresh protoreflect.Value, text string) (protoreflect.Value, error) {
	if value, err := strconv.ParseInt(text, 10, 64); err == nil {
		return protoreflect.ValueOfInt64(value), nil
	}
	parsed, err := quantity.Parse(text)
	if err != nil {
		return fresh, fmt.Errorf("%q is neither a number nor a quantity such as 10Gi", text)
	}
	value, exact := parsed.AsInt64()
	if !exact {
		return fresh, fmt.Errorf("%q is not a 64-bit integer", text)
	}
	return protoreflect.ValueOfInt64(value), nil
}

func parseEnum(enum protoreflect.EnumDescriptor, text string) (protoreflect.Value, error) {
	names := make([]string, enum.Values().Len())
	for i := range names {
		value := enum.Values().Get(i)
		names[i] = string(value.Name())
		if strings.EqualFold(names[i], text) {
			return protoreflect.ValueOfEnum(value.Number()), nil
		}
	}
	if number, err := strconv.ParseInt(text, 10, 32); err == nil {
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(number)), nil
	}
	return protoreflect.Value{}, fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
}
