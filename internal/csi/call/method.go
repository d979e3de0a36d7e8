// Package call calls any RPC of CSI of any driver, with messages as JSON. It
// knows the RPCs from the descriptors of the generated package, so that each RPC of
// that version of CSI can be called.
package call

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Method is one RPC.
type Method struct {
	// Service and Name are as in the specification: Controller, CreateVolume.
	Service, Name string
	// Alpha things may change or vanish in a minor release of CSI.
	Alpha bool
	// Stream reports whether the answer is a stream of messages.
	Stream     bool
	descriptor protoreflect.MethodDescriptor
}

// Methods lists every RPC, in the specification's order.
func Methods() []Method {
	var all []Method
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		service := services.Get(i)
		for j := range service.Methods().Len() {
			method := service.Methods().Get(j)
			all = append(all, Method{
				Service: string(service.Name()), Name: string(method.Name()),
				Alpha:  isMarked(service.Options(), csi.E_AlphaService) || isMarked(method.Options(), csi.E_AlphaMethod),
				Stream: method.IsStreamingServer(), descriptor: method,
			})
		}
	}
	return all
}

// Find finds a method by its name: CreateVolume, create-volume or create_volume,
// alone or behind its service's, as Controller/CreateVolume or
// csi.v1.Controller/CreateVolume.
func Find(name string) (Method, error) {
	methods := Methods()
	for _, method := range methods {
		if plain(name) == plain(method.Name) || plain(name) == plain(method.Service+"/"+method.Name) {
			return method, nil
		}
	}
	near := slices.MinFunc(methods, func(a, b Method) int {
		return cmp.Compare(levenshtein.ComputeDistance(plain(name), plain(a.Name)),
			levenshtein.ComputeDistance(plain(name), plain(b.Name)))
	})
	if levenshtein.ComputeDistance(plain(name), plain(near.Name)) <= len(near.Name)/3 {
		return Method{}, fmt.Errorf("CSI has no RPC %q; did you mean %s?", name, near.Name)
	}
	return Method{}, fmt.Errorf("CSI has no RPC %q; holdfast csi list shows those it has", name)
}

// plain is a name in one spelling.
func plain(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "/"), "csi.v1.")
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// Path is the method's name on the wire.
func (m Method) Path() string { return "/csi.v1." + m.Service + "/" + m.Name }

// String is Service/Name.
func (m Method) String() string { return m.Service + "/" + m.Name }

// Request makes an empty request.
func (m Method) Request() proto.Message { return dynamicpb.NewMessage(m.descriptor.Input()) }

// Answer makes an empty answer.
func (m Method) Answer() proto.Message { return dynamicpb.NewMessage(m.descriptor.Output()) }

// RequestFields are the names of the request's fields; alpha ones end in *.
func (m Method) RequestFields() []string { return fieldsOf(m.descriptor.Input()) }

// AnswerFields are the names of the answer's fields; alpha ones end in *.
func (m Method) AnswerFields() []string { return fieldsOf(m.descriptor.Output()) }

func fieldsOf(message protoreflect.MessageDescriptor) []string {
	names := []string{}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		name := string(field.Name())
		if isMarked(field.Options(), csi.E_AlphaField) {
			name += "*"
		}
		names = append(names, name)
	}
	return names
}

func isMarked(options proto.Message, mark protoreflect.ExtensionType) bool {
	marked, _ := proto.GetExtension(options, mark).(bool)
	return marked
}
