package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"

	"github.com/holdfast-csi/holdfast/proto/csiproxy"
)

// theSecret is what must not be seen, with what quoting changes.
const theSecret = "s3cr3t\\\"wörd\n!"

// indiscreet is a host whose every error contains the password.
type indiscreet struct {
	api.SMB
	api.ISCSI
}

func reveal(secret api.Secret) error {
	return fmt.Errorf("cannot log in with %s, that is %q", secret.Reveal(), secret.Reveal())
}

func (indiscreet) Mount(_ context.Context, mount api.SMBMount) error { return reveal(mount.Password) }

func (indiscreet) Connect(_ context.Context, login api.ISCSILogin) error {
	if login.IQN == "panic" {
		panic(reveal(login.Secret))
	}
	return reveal(login.Secret)
}

func (indiscreet) SetMutualSecret(_ context.Context, secret api.Secret) error { return reveal(secret) }

// No secret of any message of any version reaches the log, or an error.
func TestLog_hasNoSecretOfAnyVersion(t *testing.T) {
	pipes, versions := proxytest.NewPipes(), slices.Concat(csiproxy.Versions(), groups.Versions())
	host := api.Host{SMB: indiscreet{}, ISCSI: indiscreet{}}
	r := start(t, server.Options{Versions: versions, Transport: pipes.As(ours()), Host: host})
	seen := 0
	for _, definition := range versions {
		connection := dialer(pipes.Dial).connect(t, definition.Pipe())
		for method, request := range requests(t, definition, host) {
			seen += tellNothing(t, connection, method, request)
		}
	}
	if seen < 7 { // SMB has one in each of its four versions, iSCSI one, and two
		t.Errorf("only %d calls had a secret", seen)
	}
	for _, part := range []string{"s3cr3t", "wörd"} {
		if strings.Contains(r.log.String(), part) {
			t.Errorf("the log has %q of the secret", part)
		}
	}
	if !contains(r.log.String(), `"password":"***"`, `"chap_secret":"***"`, `"MutualChapSecret":"***"`) {
		t.Error("the log does not show that there were secrets")
	}
}

// registrar records the services that are registered.
type registrar func(description *grpc.ServiceDesc, service any)

func (r registrar) RegisterService(description *grpc.ServiceDesc, service any) {
	r(description, service)
}

// requests are an empty one for each RPC of a version, by the RPC's name.
func requests(t *testing.T, definition api.Definition, host api.Host) map[string]proto.Message {
	t.Helper()
	found := map[string]proto.Message{}
	definition.Register(registrar(func(description *grpc.ServiceDesc, service any) {
		for _, method := range description.Methods {
			_, _ = method.Handler(service, t.Context(), func(request any) error {
				found["/"+description.ServiceName+"/"+method.MethodName] = request.(proto.Message)
				return errBroken
			}, nil)
		}
	}), host)
	if len(found) == 0 {
		t.Fatalf("%s has no RPC", definition.Pipe())
	}
	return found
}

// tellNothing makes the call with every field set, and reports whether one was a
// secret.
func tellNothing(t *testing.T, connection *grpc.ClientConn, method string, request proto.Message) int {
	t.Helper()
	secrets := fill(request)
	err := connection.Invoke(t.Context(), method, request, &emptypb.Empty{})
	if err != nil && (strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "wörd")) {
		t.Errorf("%s: the error contains the secret: %v", method, err)
	}
	return min(secrets, 1)
}

// fill sets every field, those that are called secret or password to the secret.
func fill(message proto.Message) (secrets int) {
	reflected := message.ProtoReflect()
	fields := reflected.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch name := strings.ToLower(string(field.Name())); {
		case field.IsList() || field.IsMap():
		case field.Message() != nil:
			secrets += fill(reflected.Mutable(field).Message().Interface())
		case strings.Contains(name, "secret") || strings.Contains(name, "password"):
			reflected.Set(field, protoreflect.ValueOfString(theSecret))
			secrets++
		case field.Kind() == protoreflect.StringKind:
			reflected.Set(field, protoreflect.ValueOfString(`\\server\share`))
		case field.Kind() == protoreflect.Uint32Kind:
			reflected.Set(field, protoreflect.ValueOfUint32(3260))
		case field.Kind() == protoreflect.EnumKind:
			reflected.Set(field, protoreflect.ValueOfEnum(1))
		}
	}
	return secrets
}
