package api

import (
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// FormatRedacted implements fmt.Formatter for a message with a secret: no verb shows the
// secret.
func FormatRedacted(state fmt.State, message proto.Message) {
	_, _ = fmt.Fprint(state, RedactedText(message))
}

// RedactedValue implements slog.LogValuer for a message with a secret.
func RedactedValue(message proto.Message) slog.Value { return slog.StringValue(RedactedText(message)) }

// RedactedText is the message in protobuf's text form, with stars in place of its secrets
// (see IsSecret).
func RedactedText(message proto.Message) string {
	copied := proto.Clone(message)
	reflected := copied.ProtoReflect()
	reflected.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if IsSecret(field) {
			reflected.Set(field, protoreflect.ValueOfString(redacted))
		}
		return true
	})
	return prototext.MarshalOptions{}.Format(copied)
}

// IsSecret reports whether a field is a secret, by its name: in the versions of
// the APIs that is password, secret, chap_secret or MutualChapSecret.
func IsSecret(field protoreflect.FieldDescriptor) bool {
	name := strings.ToLower(string(field.Name()))
	return field.Kind() == protoreflect.StringKind && !field.IsList() && !field.IsMap() &&
		(strings.Contains(name, "password") || strings.Contains(name, "secret"))
}
