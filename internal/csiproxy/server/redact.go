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
	// longestText is how much of a field a log shows, in bytes: a path and some.
	longestText = 300
	// mostEntries is how much of a list or map a log shows.
	mostEntries = 8
)

// describe returns a request as log attributes: its fields that are
// set, without secrets.
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

// secrets are those of one request, the longest first: one that begins with
// another must not be half left.
type secrets []string

// secretsOf finds the secrets of a request, so that an error that repeats one
// can be cleaned.
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

// scrub takes the secrets out of a text, also where it quotes them.
func (s secrets) scrub(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, redacted)
		quoted := strconv.Quote(secret)
		text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], redacted)
	}
	return text
}
