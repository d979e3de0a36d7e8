// Command bench measures csi-proxy.exe: the time and throughput of filesystem RPCs
// over its pipe for some numbers of clients, and its resident memory when idle.
// With -reference, another csi-proxy of the same API is measured in turn with it,
// and the ratios are printed. Under wine the numbers compare two servers with each
// other, never with Windows.
package main

import (
	"cmp"
	"context"
	"debug/pe"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	filesystem "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem/v2alpha1"
)

const (
	pipe      = `\\.\pipe\csi-proxy-filesystem-v1`
	startTime = time.Minute
	idleAfter = 3 * time.Second // a serving process that gets no calls
)

// plan is what is measured.
type plan struct {
	kubelet string
	calls   int // per measurement
	rounds  int
}

func main() {
	proxy := flag.String("proxy", "", "`path` of csi-proxy.exe")
	reference := flag.String("reference", "", "`path` of another csi-proxy.exe to compare it with")
	calls := flag.Int("calls", 2000, "calls of each measurement")
	rounds := flag.Int("rounds", 3, "rounds, of which the median counts")
	flag.Parse()
	if err := run(*proxy, *reference, *calls, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(proxy, reference string, calls, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(dir) }()
	p := plan{kubelet: dir, calls: calls, rounds: rounds}
	programs := []string{proxy}
	if reference != "" {
		programs = append(programs, reference)
	}
	results := make([]results, len(programs))
	for range rounds {
		for i, program := range programs { // in turn, so that a busy machine is busy for both
			if err := p.measure(program, &results[i]); err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
		}
	}
	print(results)
	return nil
}

// results are those of one program, of all rounds.
type results struct {
	rows   []row
	memory []float64 // MiB
	image  float64   // MiB
}

// row is one kind of call by one number of clients.
type row struct {
	name    string
	clients int
	median  []time.Duration // of one call, by round
	most    []time.Duration // the 99th of a hundred
	rate    []float64       // calls a second
}

func kinds() []struct {
	name string
	call func(ctx context.Context, c *grpc.ClientConn, path string) error
} {
	invoke := func(ctx context.Context, c *grpc.ClientConn, method string, request proto.Message) error {
		return c.Invoke(ctx, "/v1.Filesystem/"+method, request, &emptypb.Empty{})
	}
	return []struct {
		name string
		call func(ctx context.Context, c *grpc.ClientConn, path string) error
	}{
		{"PathExists", func(ctx context.Context, c *grpc.ClientConn, path string) error {
			return invoke(ctx, c, "PathExists", &filesystem.PathExistsRequest{Path: path})
		}},
		{"Mkdir, Rmdir", func(ctx context.Context, c *grpc.ClientConn, path string) error {
			return errors.Join(invoke(ctx, c, "Mkdir", &filesystem.MkdirRequest{Path: path}), invoke(ctx, c, "Rmdir", &filesystem.RmdirRequest{Path: path}))
		}},
	}
}

// measure runs a program, measures everything once, and ends it.
func (p plan) measure(program string, r *results) error {
	command := exec.CommandContext(context.Background(), program, "-kubelet-path="+p.kubelet)
	if err := command.Start(); err != nil {
		return err
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	if err := awaitPipe(); err != nil {
		return err
	}
	time.Sleep(idleAfter)
	memory, err := resident(uint32(command.Process.Pid))
	if err != nil {
		return err
	}
	if r.image, err = imageOf(program); err != nil {
		return err
	}
	r.memory = append(r.memory, memory)
	at := 0
	for _, kind := range kinds() {
		for _, clients := range []int{1, 4, 16, 64} {
			if at == len(r.rows) {
				r.rows = append(r.rows, row{name: kind.name, clients: clients})
			}
			if err := p.call(&r.rows[at], kind.call); err != nil {
				return fmt.Errorf("%s by %d clients: %w", kind.name, clients, err)
			}
			at++
		}
	}
	return nil
}

func awaitPipe() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		connection, err := winio.DialPipeContext(ctx, pipe)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not serve %s: %w", pipe, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// call makes the row's calls by its clients, each with a connection of its own.
func (p plan) call(r *row, do func(context.Context, *grpc.ClientConn, string) error) error {
	took := make([][]time.Duration, r.clients)
	failures := make([]error, r.clients)
	var clients, connected sync.WaitGroup
	connected.Add(r.clients)
	begin := make(chan struct{})
	for i := range r.clients {
		clients.Go(func() {
			took[i], failures[i] = p.client(filepath.Join(p.kubelet, fmt.Sprintf("client%d", i)), p.calls/r.clients, do, connected.Done, begin)
		})
	}
	connected.Wait()
	start := time.Now()
	close(begin)
	clients.Wait()
	elapsed := time.Since(start)
	if err := errors.Join(failures...); err != nil {
		return err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	r.median = append(r.median, all[len(all)/2])
	r.most = append(r.most, all[len(all)*99/100])
	r.rate = append(r.rate, float64(len(all))/elapsed.Seconds())
	return nil
}

func (p plan) client(path string, calls int, do func(context.Context, *grpc.ClientConn, string) error, connected func(), begin <-chan struct{}) ([]time.Duration, error) {
	connection, err := grpc.NewClient("passthrough:///"+pipe, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(winio.DialPipeContext))
	if err != nil {
		connected()
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	first := do(ctx, connection, path) // which connects
	connected()
	if first != nil {
		return nil, first
	}
	<-begin
	took := make([]time.Duration, 0, calls)
	for range calls {
		start := time.Now()
		if err := do(ctx, connection, path); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

const mib = 1 << 20

// resident is a process's memory in MiB (PROCESS_MEMORY_COUNTERS.WorkingSetSize).
func resident(pid uint32) (float64, error) {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_INFORMATION|windows.PROCESS_VM_READ, false, pid)
	if err != nil {
		return 0, err
	}
	defer func() { _ = windows.CloseHandle(process) }()
	var counters struct {
		size, faults                uint32
		peakWorkingSet, workingSet  uintptr
		quotaPeakPaged, quotaPaged  uintptr
		quotaPeakOther, quotaOther  uintptr
		pagefile, peakPagefileUsage uintptr
	}
	counters.size = uint32(unsafe.Sizeof(counters))
	ask := windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")
	if done, _, err := ask.Call(uintptr(process), uintptr(unsafe.Pointer(&counters)), uintptr(counters.size)); done == 0 {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return float64(counters.workingSet) / mib, nil
}

// imageOf is the size of a program's sections in its file, in MiB. wine reads all
// of them into memory, since Go aligns them to 512 bytes in the file; Windows maps
// them, and has of them in memory what is used.
func imageOf(program string) (float64, error) {
	file, err := pe.Open(program)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	var bytes uint32
	for _, section := range file.Sections {
		bytes += section.Size
	}
	return float64(bytes) / mib, nil
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func print(all []results) {
	head := "| calls | clients | median | 99 % | calls/s |"
	line := "|---|--:|--:|--:|--:|"
	if len(all) > 1 {
		head += " reference: median | 99 % | calls/s | calls/s, ratio |"
		line += "--:|--:|--:|--:|"
	}
	fmt.Printf("%s\n%s\n", head, line)
	for i, r := range all[0].rows {
		fmt.Printf("| %s | %d |%s", r.name, r.clients, cells(r))
		if len(all) > 1 {
			other := all[1].rows[i]
			fmt.Printf("%s %.2f |", cells(other), median(r.rate)/median(other.rate))
		}
		fmt.Println()
	}
	fmt.Println()
	for i, name := range []string{"csi-proxy", "reference"}[:len(all)] {
		memory := median(all[i].memory)
		fmt.Printf("idle memory of %s: %.1f MiB resident; %.1f MiB without its image of %.1f MiB, which wine copies and Windows maps\n", name, memory, memory-all[i].image, all[i].image)
	}
}

func cells(r row) string {
	short := func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
	return fmt.Sprintf(" %s | %s | %.0f |", short(median(r.median)), short(median(r.most)), median(r.rate))
}
