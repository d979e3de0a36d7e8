package server

import (
	"cmp"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

const (
	// redacted replaces a secret.
	redacted = "***"
	// shortestSecret is the length in bytes from which a secret is searched for in
	// error texts; shorter strings occur in any text.
	shortestSecret = 4
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

// secrets are those of one request, the longest first: if one begins with another, scrub
// must remove all of it.
type secrets []string

// secretsOf finds the secrets of a request, so that scrub can remove them from an error.
func secretsOf(request proto.Message) (found secrets) {
	visitSecrets(request.ProtoReflect(), func(text string) {
		if len(text) >= shortestSecret {
			found = append(found, text)
		}
	})
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
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

// scrub removes the secrets from a text, quoted ones too.
func (s secrets) scrub(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, redacted)
		quoted := strconv.Quote(secret)
		text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], redacted)
	}
	return text
}
