package client

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// framed is a message as gRPC sends it.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// A code that no driver sent says nothing about the work. gRPC uses the same codes for
// answers that it could not send or read: of these the volume exists.
func TestCall_onlyWhatTheDriverSaysIsFinal(t *testing.T) {
	volume, err := proto.Marshal(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "v"}})
	if err != nil {
		t.Fatal(err)
	}
	says := func(code codes.Code, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", fmt.Sprint(int(code)))
			w.Header().Set("Grpc-Message", message)
		}
	}
	sends := func(body []byte, more func(http.ResponseWriter)) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(body)
			w.(http.Flusher).Flush()
			more(w)
		}
	}
	succeeds := func(w http.ResponseWriter) { w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0") }
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		outcome claim.Outcome
	}{
		"no room":                           {says(codes.ResourceExhausted, "no room"), claim.OutcomeFinal},
		"a failure":                         {says(codes.Internal, "mkfs failed"), claim.OutcomeFinal},
		"a failure after the first headers": {sends(nil, func(w http.ResponseWriter) { w.Header().Set(http.TrailerPrefix+"Grpc-Status", "13") }), claim.OutcomeFinal},
		"an answer that is too long":        {sends(framed(make([]byte, maximumAnswer+1)), succeeds), claim.OutcomeUncertain},
		"an answer that cannot be decoded":  {sends(framed([]byte{0xff}), succeeds), claim.OutcomeUncertain},
		"an answer that could not be sent":  {says(codes.Internal, "grpc: error while marshaling: string field contains invalid UTF-8"), claim.OutcomeUncertain},
		"an answer in an unknown encoding":  {sends(append([]byte{1}, framed(volume)[1:]...), succeeds), claim.OutcomeUncertain},
		"a stream that is reset":            {sends(framed(volume), func(http.ResponseWriter) { panic(http.ErrAbortHandler) }), claim.OutcomeUncertain},
		"an answer without its status":      {sends(framed(volume), func(http.ResponseWriter) {}), claim.OutcomeUncertain},
		"an answer of HTTP":                 {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) }, claim.OutcomeUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := socket(t)
			listener := listen(t, path)
			server := &http.Server{Protocols: &http.Protocols{}, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name != "an answer of HTTP" {
					w.Header().Set("Content-Type", "application/grpc")
				}
				c.answer(w, r)
			})}
			server.Protocols.SetUnencryptedHTTP2(true)
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Close() })
			ctx, code := NoteCode(t.Context())
			_, err := dial(t, path, Options{}).CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "v"})
			if got := claim.Classify(claim.CallCreate, err); got != c.outcome {
				t.Errorf("the outcome is %v, want %v: %v", got, c.outcome, err)
			}
			if c.outcome == claim.OutcomeUncertain && (code() != codes.Unknown.String() || !strings.Contains(err.Error(), "no answer of the driver")) {
				t.Errorf("the code is %s: %v", code(), err)
			}
		})
	}
}
