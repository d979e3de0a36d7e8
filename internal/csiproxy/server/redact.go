package server

import (
	"log/slog"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/redact"
)

const (
	// redacted replaces the field of a secret; redact.Hidden is in texts.
	redacted = "***"
	// longestText bounds the text of a field in the log, in bytes. It exceeds the longest
	// path.
	longestText = 300
	// mostEntries bounds the entries of a list in the log.
	mostEntries = 8
)

// describe returns the fields of a request that are set as log attributes, without
// secrets.
func describe(message protoreflect.Message) []any {
	var attributes []any
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); message.Has(field) {
			attributes = append(attributes, describeField(field, message.Get(field)))
		}
	}
	return attributes
}

func describeField(field protoreflect.FieldDescriptor, value protoreflect.Value) slog.Attr {
	name := string(field.Name())
	switch {
	case api.IsSecret(field):
		return slog.String(name, redacted)
	case field.IsMap():
		return slog.Int(name+"_entries", value.Map().Len())
	case field.IsList():
		return slog.Any(name, describeList(field, value.List()))
	case field.Message() != nil:
		return slog.Group(name, describe(value.Message())...)
	}
	return slog.String(name, describeScalar(field, value))
}

func describeList(field protoreflect.FieldDescriptor, list protoreflect.List) []string {
	var texts []string
	for i := range min(list.Len(), mostEntries) {
		texts = append(texts, describeScalar(field, list.Get(i)))
	}
	return texts
}

func describeScalar(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch field.Kind() {
	case protoreflect.StringKind:
		return shorten(value.String())
	case protoreflect.EnumKind:
		if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
			return string(known.Name())
		}
		return strconv.Itoa(int(value.Enum()))
	case protoreflect.BytesKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return "…"
	}
	return value.String()
}

func shorten(text string) string {
	if len(text) <= longestText {
		return text
	}
	end := longestText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// secretsOf finds the secrets of a request, so that they can be removed from an error.
func secretsOf(request proto.Message) (found redact.Secrets) {
	visitSecrets(request.ProtoReflect(), found.Add)
	return found
}

func visitSecrets(message protoreflect.Message, visit func(string)) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap(), field.IsList():
		case api.IsSecret(field):
			visit(value.String())
		case field.Message() != nil:
			visitSecrets(value.Message(), visit)
		}
		return true
	})
}
