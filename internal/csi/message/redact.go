package message

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
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
				if name.String() == TokensKey || IsSecretName(name.String()) {
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
// forms in which programs repeat it, and the tokens of a service account one by one.
func SecretsOf(request proto.Message) []string {
	var found secretForms
	visitSecrets(request.ProtoReflect(),
		func(message protoreflect.Message, field protoreflect.FieldDescriptor) {
			switch value := message.Get(field); {
			case field.IsMap():
				value.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
					found.add(value.String())
					return true
				})
			case field.IsList():
				for i := range value.List().Len() {
					found.addFlag(value.List().Get(i).String())
				}
			}
		},
		func(entries protoreflect.Map, key protoreflect.MapKey) {
			if key.String() == TokensKey {
				found.addTokens(entries.Get(key).String())
				return
			}
			found.addNamed(entries.Get(key).String())
		})
	// The longest first: a secret that begins with another must not be half left.
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(found)
}

// secretForms are secret values as error messages may repeat them.
type secretForms []string

// add adds a value as it is, without the space around it, which drivers cut off, and as
// the inside of a quoted text and of a URL.
func (f *secretForms) add(value string) {
	trimmed := strings.TrimSpace(value)
	quoted := strconv.Quote(trimmed)
	for _, form := range []string{value, trimmed, quoted[1 : len(quoted)-1], url.QueryEscape(trimmed), url.PathEscape(trimmed)} {
		if len(form) >= shortestSecret {
			*f = append(*f, form)
		}
	}
}

// addNamed adds a value that is taken for a secret by its name; a boolean is a setting.
func (f *secretForms) addNamed(value string) {
	if _, err := strconv.ParseBool(value); err != nil {
		f.add(value)
	}
}

// addFlag adds the secret values of a mount flag, which may be several options.
func (f *secretForms) addFlag(flag string) {
	for option := range strings.SplitSeq(flag, ",") {
		if name, value, ok := strings.Cut(option, "="); ok && IsSecretName(name) {
			f.addNamed(value)
		}
	}
}

// addTokens adds the tokens for each audience, next to the whole.
func (f *secretForms) addTokens(text string) {
	f.add(text)
	audiences := map[string]struct {
		Token string `json:"token"`
	}{}
	_ = json.Unmarshal([]byte(text), &audiences) // another form is hidden as a whole
	for _, audience := range audiences {
		f.add(audience.Token)
	}
}

// WithoutSecrets is a text with each of the secrets hidden.
func WithoutSecrets(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, Hidden)
	}
	return text
}
