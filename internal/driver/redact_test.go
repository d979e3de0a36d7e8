package driver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const secret = "correct-horse-battery-staple"

// chain gives an interceptor that logs everything into a buffer.
func chain(t *testing.T) (*interceptor, *bytes.Buffer) {
	t.Helper()
	measured, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return &interceptor{log: log, metrics: measured, node: "node-1"}, &out
}

// confide puts the secret wherever a message may hold one.
func confide(request complete) (secrets int) {
	for _, place := range request.places {
		if isSecret(place.field) || place.field.Name() == "mount_flags" {
			place.set(secret)
			secrets++
		}
	}
	context := request.message.ProtoReflect().Descriptor().Fields().ByName("volume_context")
	if context != nil {
		entries := request.message.ProtoReflect().Mutable(context).Map()
		entries.Set(protoreflect.ValueOfString(tokensKey).MapKey(), protoreflect.ValueOfString(secret))
		secrets++
	}
	return secrets
}

func TestUnary_noSecretInTheLogOfAnyRequest(t *testing.T) {
	total := 0
	for _, request := range filled(t, "x") {
		count := confide(request)
		total += count
		chain, out := chain(t)
		before := proto.Clone(request.message)
		call(chain, request, func(context.Context, any) (any, error) { return nil, nil })
		if !proto.Equal(before, request.message) {
			t.Errorf("%s: logging changed the request", request.name())
		}
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s: the log has the secret: %s", request.name(), out)
		}
		if count > 0 && !strings.Contains(out.String(), redacted) {
			t.Errorf("%s: the log does not show that something was left out: %s", request.name(), out)
		}
	}
	if total < 30 {
		t.Errorf("only %d places for secrets were tried", total)
	}
}

func TestUnary_noSecretInErrorsAndPanics(t *testing.T) {
	for _, request := range filled(t, "x") {
		if confide(request) == 0 || len(secretsOf(request.message)) == 0 {
			continue
		}
		handlers := map[string]grpc.UnaryHandler{
			"error": func(context.Context, any) (any, error) { return nil, fmt.Errorf("login with %s failed", secret) },
			"panic": func(context.Context, any) (any, error) { panic("bad password " + secret) },
		}
		for kind, handler := range handlers {
			chain, out := chain(t)
			err := call(chain, request, handler)
			if strings.Contains(err.Error(), secret) || strings.Contains(out.String(), secret) {
				t.Errorf("%s: the %s gives the secret away: %v; %s", request.name(), kind, err, out)
			}
		}
	}
}

func call(chain *interceptor, request complete, handler grpc.UnaryHandler) error {
	_, err := chain.unary(context.Background(), request.message, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Any/" + request.name()}, handler)
	return err
}

func TestSecretsOf_theLongestFirst(t *testing.T) {
	request := &csi.DeleteVolumeRequest{VolumeId: "v", Secrets: map[string]string{"a": "swordfish", "b": "swordfish-2", "c": "sea"}}
	err := toStatus(fmt.Errorf("tried swordfish-2 and swordfish at sea"), secretsOf(request))
	if got, want := status.Convert(err).Message(), "tried (redacted) and (redacted) at sea"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}
