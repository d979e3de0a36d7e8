package server

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

	"github.com/holdfast-csi/holdfast/internal/csi/message"
	"github.com/holdfast-csi/holdfast/internal/csi/message/messagetest"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

const secret = "correct-horse-battery-staple"

// chain returns an interceptor that logs everything into a buffer.
func chain(t *testing.T) (*interceptor, *bytes.Buffer) {
	t.Helper()
	tracker := &progress.Tracker{}
	measured, err := newCallMetrics(nil, "d.example.com", tracker)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return &interceptor{log: log, metrics: measured, node: "node-1", tracker: tracker}, &out
}

// confide puts the secret into every field that may have one.
func confide(request messagetest.Complete) (secrets int) {
	for _, entry := range request.Texts {
		if message.IsSecret(entry.Field) || entry.Field.Name() == "mount_flags" {
			entry.Set(secret)
			secrets++
		}
	}
	context := request.Message.ProtoReflect().Descriptor().Fields().ByName("volume_context")
	if context != nil {
		entries := request.Message.ProtoReflect().Mutable(context).Map()
		entries.Set(protoreflect.ValueOfString(message.TokensKey).MapKey(), protoreflect.ValueOfString(secret))
		secrets++
	}
	return secrets
}

func TestUnary_noSecretInTheLogOfAnyRequest(t *testing.T) {
	total := 0
	for _, request := range messagetest.Filled(t, "x") {
		count := confide(request)
		total += count
		chain, out := chain(t)
		before := proto.Clone(request.Message)
		call(chain, request, func(context.Context, any) (any, error) { return nil, nil })
		if !proto.Equal(before, request.Message) {
			t.Errorf("%s: logging changed the request", request.Name())
		}
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s: the log has the secret: %s", request.Name(), out)
		}
		if count > 0 && !strings.Contains(out.String(), message.Hidden) {
			t.Errorf("%s: the log does not show that something was left out: %s", request.Name(), out)
		}
	}
	if total < 30 {
		t.Errorf("only %d fields for secrets were tried", total)
	}
}

func TestUnary_noSecretInErrorsAndPanics(t *testing.T) {
	for _, request := range messagetest.Filled(t, "x") {
		if confide(request) == 0 || len(message.SecretsOf(request.Message)) == 0 {
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
				t.Errorf("%s: the %s gives the secret away: %v; %s", request.Name(), kind, err, out)
			}
		}
	}
}

func call(chain *interceptor, request messagetest.Complete, handler grpc.UnaryHandler) error {
	_, err := chain.unary(context.Background(), request.Message, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Any/" + request.Name()}, handler)
	return err
}

func TestSecretsOf_theLongestFirst(t *testing.T) {
	request := &csi.DeleteVolumeRequest{VolumeId: "v", Secrets: map[string]string{"a": "swordfish", "b": "swordfish-2", "c": "sea"}}
	err := toStatus(fmt.Errorf("tried swordfish-2 and swordfish at sea"), message.SecretsOf(request))
	if got, want := status.Convert(err).Message(), "tried (redacted) and (redacted) at sea"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}
