package register

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// FuzzAnswers is a kubelet that calls with any bytes. The driver's name and endpoint stay,
// and the state in words has a bound.
func FuzzAnswers(f *testing.F) {
	for _, status := range []*registration.RegistrationStatus{{PluginRegistered: true}, {Error: "the name is taken"}, {Error: strings.Repeat("x", 60_000)}, {}} {
		wire, err := proto.Marshal(status)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(fuzztest.Append(fuzztest.Append(nil, 0, nil), 1, wire))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		server, err := New(Options{Directory: "/registry", Driver: driver, Endpoint: "/csi/csi.sock", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		server.status.offer("/registry/" + driver + "-reg.sock")
		services := &fuzztest.Services{}
		registration.RegisterRegistrationServer(services, &answers{options: server.options, status: &server.status})
		fuzztest.Cost{}.Within(t, len(data), func() {
			for _, call := range fuzztest.Script(data, len(services.Methods)) {
				response, read, err := services.Methods[call.Method].Call(context.Background(), call.Request)
				if info, ok := response.(*registration.PluginInfo); ok && (info.GetName() != driver || info.GetEndpoint() != "/csi/csi.sock") {
					t.Errorf("the driver says that it is %v", info)
				}
				if read && err != nil {
					t.Error(err)
				}
			}
		})
		words, err := server.Describe()
		if err != nil {
			words = err.Error()
		}
		if words == "" || len(words) > 2<<10 {
			t.Errorf("the state in words has %d bytes", len(words))
		}
	})
}
