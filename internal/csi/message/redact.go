package message

import (
	"log/slog"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/redact"
)

// TokensKey carries service account tokens in a volume context (Kubernetes).
const TokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// Hidden replaces a secret.
const Hidden = redact.Hidden

// Loggable shows a message in a log without its secrets; see Shown.
type Loggable struct{ Message proto.Message }

// LogValue implements slog.LogValuer, so that a message is copied only if it is printed.
func (l Loggable) LogValue() slog.Value {
	text, err := protojson.Marshal(Shown(l.Message))
	if err != nil {
		return slog.StringValue("(not printable)")
	}
	// The fields that are shown may repeat a secret of the others.
	return slog.StringValue(SecretsOf(l.Message).Text(string(text)))
}

// Shown is a copy of a message without the values of fields that carry the
// option csi_secret, without mount flags ("MAY contain sensitive information"),
// and without the attributes and parameters whose name is that of a secret.
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
			value.Map().Range(func(name protoreflect.MapKey, _ protoreflect.Value) bool {
				if name.String() == TokensKey || redact.IsSecretName(name.String()) {
					key(value.Map(), name)
				}
				return true
			})
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
// repeats one can be cleaned. Of a mount flag such as password=x it is the value:
// an error has to be able to name the flag it refuses. Each value is there in the
// forms in which programs repeat it, and so are the secrets inside of it, such as the
// tokens of a service account.
func SecretsOf(request proto.Message) (found redact.Secrets) {
	visitSecrets(request.ProtoReflect(),
		func(message protoreflect.Message, field protoreflect.FieldDescriptor) {
			switch value := message.Get(field); {
			case field.IsMap():
				value.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
					found.Add(value.String())
					return true
				})
			case field.IsList():
				for i := range value.List().Len() {
					addFlag(&found, value.List().Get(i).String())
				}
			}
		},
		func(entries protoreflect.Map, key protoreflect.MapKey) {
			found.AddNamed(entries.Get(key).String())
		})
	return found
}

// addFlag adds the secret values of a mount flag, which may be several options.
func addFlag(found *redact.Secrets, flag string) {
	for option := range strings.SplitSeq(flag, ",") {
		if name, value, ok := strings.Cut(option, "="); ok && redact.IsSecretName(name) {
			found.AddNamed(value)
		}
	}
}
