package grpcserver

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-csi/holdfast/internal/connlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const method = "/test.Test/Echo"

// serve runs a server of one method, which calls do, on a TCP address.
func serve(t *testing.T, limits Limits, do func(context.Context)) (*Server, string) {
	t.Helper()
	s := New(limits)
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Test", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Echo", Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			request := &wrapperspb.BytesValue{}
			if err := decode(request); err != nil {
				return nil, err
			}
			return intercept(ctx, request, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
				do(ctx)
				return request, nil
			})
		},
	}}}, struct{}{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return s, listener.Addr().String()
}

// client connects from an address of this machine.
func client(t *testing.T, address, from string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			return dialer.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func ask(t *testing.T, connection *grpc.ClientConn, size int) codes.Code {
	t.Helper()
	return status.Code(connection.Invoke(t.Context(), method, wrapperspb.Bytes(make([]byte, size)), &wrapperspb.BytesValue{}))
}

// Calls above a peer's share, and above all, are refused with a code that no CO takes for a
// full storage; those of another peer run, and the first peer's again when its others have
// ended.
func TestServer_refusesCallsAboveTheShareOfAPeer(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s, address := serve(t, Limits{Calls: 3, CallsOfPeer: 2}, func(context.Context) {
		entered <- struct{}{}
		<-leave
	})
	one, other := client(t, address, "127.0.0.2"), client(t, address, "127.0.0.3")
	ended := make(chan codes.Code)
	hold := func(c *grpc.ClientConn) {
		go func() { ended <- ask(t, c, 0) }()
		<-entered
	}
	hold(one)
	hold(one)
	if code := ask(t, one, 0); code != codes.Unavailable {
		t.Errorf("above the share of a peer: %v", code)
	}
	hold(other)
	if code := ask(t, other, 0); code != codes.Unavailable {
		t.Errorf("above all: %v", code)
	}
	for range 3 {
		leave <- struct{}{}
		if code := <-ended; code != codes.OK {
			t.Errorf("a call within the limits: %v", code)
		}
	}
	empty(t, s)
	hold(one)
	leave <- struct{}{}
	if code := <-ended; code != codes.OK {
		t.Errorf("after the others: %v", code)
	}
}

func TestServer_refusesLargeMessages(t *testing.T) {
	_, address := serve(t, Limits{Message: 1 << 10}, func(context.Context) {})
	c := client(t, address, "127.0.0.1")
	if code := ask(t, c, 2<<10); code != codes.ResourceExhausted {
		t.Errorf("a message above the limit: %v", code)
	}
	if code := ask(t, c, 512); code != codes.OK {
		t.Errorf("a message below the limit: %v", code)
	}
}

// A request that begins and does not arrive ends with its time, and leaves the count of
// its peer. One that arrived has no such time any more.
func TestServer_endsARequestThatDoesNotArrive(t *testing.T) {
	_, other := serve(t, Limits{}, func(ctx context.Context) {
		if one, ok := ctx.Value(callKey{}).(*call); !ok || one.arrival.Stop() {
			t.Error("the time of a request that has arrived is not over")
		}
	})
	if code := ask(t, client(t, other, "127.0.0.1"), 0); code != codes.OK {
		t.Errorf("a request that arrives: %v", code)
	}
	s, address := serve(t, Limits{Arrival: 50 * time.Millisecond}, func(context.Context) { t.Error("half of a request is answered") })
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(c, c)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(framer.WriteSettings(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}),
		framer.WriteData(1, false, []byte{0, 0, 0, 1, 0, 7})) // 1 of 256 bytes
	if err != nil {
		t.Fatal(err)
	}
	for ended := false; !ended; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if headers, ok := frame.(*http2.HeadersFrame); ok {
			ended = headers.StreamEnded()
		}
		_, reset := frame.(*http2.RSTStreamFrame)
		ended = ended || reset
	}
	empty(t, s)
}

// empty waits until no call is counted.
func empty(t *testing.T, s *Server) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.calls.mu.Lock()
		all, peers := s.calls.all, len(s.calls.byPeer)
		s.calls.mu.Unlock()
		if all == 0 && peers == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d calls of %d peers are counted", all, peers)
		}
	}
}

// Peers that the system does not name, such as a kubelet outside of the container, may use
// all calls.
func TestCalls_unknownPeersHaveNoShare(t *testing.T) {
	c := newCalls(Limits{Calls: 2, CallsOfPeer: 1})
	for i, want := range []bool{true, true, false} {
		if got := c.enter(connlimit.Unknown); got != want {
			t.Errorf("call %d enters: %v; want %v", i, got, want)
		}
	}
}
