package call

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	csimessage "github.com/holdfast-csi/holdfast/internal/csi/message"
)

// Input has the parts of a request.
type Input struct {
	// JSON is the request, or empty. Field names are those of the specification
	// (volume_id) or of the JSON mapping (volumeId).
	JSON []byte
	// Public says that others can read JSON: secrets are refused in it.
	Public bool
	// Set are changes of single fields, PATH=VALUE; see set.
	Set []string
	// Secrets goes into the field secrets.
	Secrets map[string]string
}

// Build makes a request. Its errors name the refused field, and no value of a secret.
func (m Method) Build(input Input) (proto.Message, error) {
	request := m.Request()
	if len(input.JSON) > 0 {
		if err := (protojson.UnmarshalOptions{}).Unmarshal(input.JSON, request); err != nil {
			return nil, fmt.Errorf("the request of %s: %s", m.Name, tidy(err))
		}
	}
	if input.Public {
		if field := secretIn(request.ProtoReflect()); field != "" {
			return nil, fmt.Errorf("%s is on the command line, where every process of this machine can read it: use --secret "+
				"KEY=@FILE, or give the request as @FILE or -", field)
		}
	}
	for _, change := range input.Set {
		path, value, ok := strings.Cut(change, "=")
		if !ok {
			return nil, fmt.Errorf("--set %s: want PATH=VALUE", change)
		}
		if err := set(request.ProtoReflect(), path, value); err != nil {
			return nil, fmt.Errorf("--set %s: %w", path, err)
		}
	}
	return request, m.confide(request.ProtoReflect(), input.Secrets)
}

// confide puts the secrets where the request has them.
func (m Method) confide(request protoreflect.Message, secrets map[string]string) error {
	if len(secrets) == 0 {
		return nil
	}
	field := request.Descriptor().Fields().ByName("secrets")
	if field == nil || !csimessage.IsSecret(field) {
		return fmt.Errorf("%s takes no secrets", m.Name)
	}
	entries := request.Mutable(field).Map()
	for key, value := range secrets {
		entries.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
	}
	return nil
}

// secretIn names a field that is set and secret, or "".
func secretIn(message protoreflect.Message) (found string) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case csimessage.IsSecret(field):
			found = string(field.Name())
		case field.Kind() == protoreflect.MessageKind && !field.IsMap() && !field.IsList():
			found = secretIn(value.Message())
		}
		return found == ""
	})
	return found
}

// tidy is an error of protojson without its prefix, whose blanks change from
// build to build on purpose.
func tidy(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimPrefix(text, "proto: ")
}
