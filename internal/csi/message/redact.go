package message

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TokensKey carries service account tokens in a volume context (Kubernetes).
const TokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// Hidden replaces a secret.
const Hidden = "(redacted)"

// shortestSecret is the length in bytes from which a secret is searched in
// error messages; shorter ones occur in any text.
const shortestSecret = 4

// Loggable shows a message in a log without its secrets; see Shown.
type Loggable struct{ Message proto.Message }

// LogValue implements slog.LogValuer, so that a message is copied only if it is printed.
func (l Loggable) LogValue() slog.Value {
	text, err := protojson.Marshal(Shown(l.Message))
	if err != nil {
		return slog.StringValue("(not printable)")
	}
	return slog.StringValue(string(text))
}

// Shown is a copy of a message without the values of fields that carry the
// option csi_secret, without mount flags ("MAY contain sensitive information")
// and without tokens.
func Shown(message proto.Message) proto.Message {
	clean := proto.Clone(message)
	visitSecrets(clean.ProtoReflect(), redactField, redactKey)
	return clean
}

// IsSecret reports whether a field carries the option csi_secret.
func IsSecret(field protoreflect.FieldDescriptor) bool {
	marked, _ := proto.GetExtension(field.Options(), csi.E_CsiSecret).(bool)
	return marked
}

// visitSecrets calls whole for each field of a message that is sensitive as a
// whole, and key for each map that has a sensitive key.
func visitSecrets(
	message protoreflect.Message,
	whole func(protoreflect.Message, protoreflect.FieldDescriptor),
	key func(protoreflect.Map, protoreflect.MapKey),
) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case IsSecret(field) || field.Name() == "mount_flags":
			whole(message, field)
		case field.IsMap() && field.MapValue().Kind() == protoreflect.StringKind:
			if name := protoreflect.ValueOfString(TokensKey).MapKey(); value.Map().Has(name) {
				key(value.Map(), name)
			}
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			for i := range value.List().Len() {
				visitSecrets(value.List().Get(i).Message(), whole, key)
			}
		case field.Kind() == protoreflect.MessageKind && !field.IsMap():
			visitSecrets(value.Message(), whole, key)
		}
		return true
	})
}

func redactField(message protoreflect.Message, field protoreflect.FieldDescriptor) {
	switch {
	case field.IsMap():
		entries := message.Mutable(field).Map()
		entries.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
			redactKey(entries, key)
			return true
		})
	case field.IsList():
		list := message.Mutable(field).List()
		for i := range list.Len() {
			list.Set(i, protoreflect.ValueOfString(Hidden))
		}
	default:
		message.Clear(field)
	}
}

func redactKey(entries protoreflect.Map, key protoreflect.MapKey) {
	entries.Set(key, protoreflect.ValueOfString(Hidden))
}

// SecretsOf collects the secret values of a request, so that an error that
// repeats one can be cleaned. Mount flags are not among them: an error has to
// be able to name the flag it refuses.
func SecretsOf(request proto.Message) []string {
	var found []string
	add := func(text string) {
		if len(text) >= shortestSecret {
			found = append(found, text)
		}
	}
	visitSecrets(request.ProtoReflect(),
		func(message protoreflect.Message, field protoreflect.FieldDescriptor) {
			if !field.IsMap() {
				return
			}
			message.Get(field).Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
				add(value.String())
				return true
			})
		},
		func(entries protoreflect.Map, key protoreflect.MapKey) { add(entries.Get(key).String()) })
	// The longest first: a secret that begins with another must not be half left.
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return found
}

// WithoutSecrets is a text with each of the secrets hidden.
func WithoutSecrets(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, Hidden)
	}
	return text
}
