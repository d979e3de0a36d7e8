package client

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	csimessage "github.com/holdfast-csi/holdfast/internal/csi/message"
)

// relayRecord is the log record of one call.
type relayRecord struct {
	method  string
	options RelayOptions
	start   time.Time
	kind    protoreflect.MethodDescriptor // nil for a method that CSI does not have

	mu      sync.Mutex // requests and answers come at once
	asked   []proto.Message
	answers int
	last    frame
}

func newRelayRecord(method string, options RelayOptions) *relayRecord {
	return &relayRecord{method: method, options: options, start: time.Now(), kind: methodOf(method)}
}

// methodOf finds a method of CSI by its path, /csi.v1.Node/NodePublishVolume.
func methodOf(path string) protoreflect.MethodDescriptor {
	service, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		if string(services.Get(i).FullName()) == service {
			return services.Get(i).Methods().ByName(protoreflect.Name(name))
		}
	}
	return nil
}

func (r *relayRecord) request(message frame) {
	if r.kind == nil {
		return
	}
	request := dynamicpb.NewMessage(r.kind.Input())
	if proto.Unmarshal(message, request) != nil {
		return // the driver's answer names the fault
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, request)
}

func (r *relayRecord) answer(message frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers++; r.options.Verbose {
		if r.kind != nil && r.kind.IsStreamingServer() {
			r.options.Logger.Info("answer", "rpc", r.name(), "answer", r.shown(message))
			return
		}
		r.last = message
	}
}

// end logs the call; its error stays as it is for the caller.
func (r *relayRecord) end(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
	}
	attributes := []slog.Attr{slog.String("rpc", r.name())}
	for _, field := range []protoreflect.Name{"volume_id", "snapshot_id", "group_snapshot_id", "name", "source_volume_id", "node_id"} {
		if text := r.text(field); text != "" {
			attributes = append(attributes, slog.String(label(field), text))
		}
	}
	attributes = append(attributes, slog.Duration("duration", time.Since(r.start)),
		slog.String("code", codeOf(ctx, err).String()))
	if err != nil {
		attributes = append(attributes, slog.String("error", r.clean(status.Convert(err).Message())))
	}
	if r.kind != nil && r.kind.IsStreamingServer() {
		attributes = append(attributes, slog.Int("answers", r.answers))
	}
	r.options.Logger.LogAttrs(ctx, level, "call", append(attributes, r.messages(err)...)...)
}

// codeOf is the code that the caller gets; a call whose caller left is logged as cancelled.
func codeOf(ctx context.Context, err error) codes.Code {
	if err != nil && ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Code()
	}
	return status.Code(err)
}

func label(field protoreflect.Name) string {
	return strings.TrimSuffix(string(field), "_id")
}

func (r *relayRecord) name() string {
	if r.kind != nil {
		return string(r.kind.Name())
	}
	return r.method
}

// messages are the request and the answer for a verbose log.
func (r *relayRecord) messages(err error) (attributes []slog.Attr) {
	if !r.options.Verbose {
		return nil
	}
	for _, request := range r.asked {
		attributes = append(attributes, slog.Any("request", csimessage.Loggable{Message: request}))
	}
	if err == nil && r.last != nil {
		attributes = append(attributes, slog.Any("answer", r.shown(r.last)))
	}
	return attributes
}

// shown is an answer for the log: of a method that is not known it logs the
// size alone, since its secret fields are unknown.
func (r *relayRecord) shown(message frame) slog.LogValuer {
	if r.kind != nil {
		answer := dynamicpb.NewMessage(r.kind.Output())
		if proto.Unmarshal(message, answer) == nil {
			return csimessage.Loggable{Message: answer}
		}
	}
	return plain(fmt.Sprintf("(%d bytes)", len(message)))
}

type plain string

func (p plain) LogValue() slog.Value { return slog.StringValue(string(p)) }

// clean is a driver's message without the secrets it was given.
func (r *relayRecord) clean(text string) string {
	for _, request := range r.asked {
		text = csimessage.SecretsOf(request).Text(text)
	}
	return text
}

func (r *relayRecord) text(name protoreflect.Name) string {
	for _, request := range r.asked {
		message := request.ProtoReflect()
		field := message.Descriptor().Fields().ByName(name)
		if field != nil && field.Kind() == protoreflect.StringKind && !field.IsList() && !field.IsMap() {
			return message.Get(field).String()
		}
	}
	return ""
}
