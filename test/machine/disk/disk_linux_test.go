package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// client is an emulator's end of the protocol.
type client struct {
	t *testing.T
	net.Conn
}

// connect takes the export, as QEMU does: an option that the server lacks first.
func connect(t *testing.T, d *Disk) client {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "d"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	connection, err := new(net.Dialer).DialContext(t.Context(), "unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := client{t, connection}
	c.receive(18)
	c.send(binary.BigEndian.AppendUint32(nil, flagFixedNewstyle|flagNoZeroes))
	const structuredReplies = 8
	c.option(structuredReplies)
	if got := binary.BigEndian.Uint32(c.receive(20)[12:]); got != replyUnsupported {
		t.Fatalf("an unknown option is answered with %x", got)
	}
	c.option(optionGo)
	about := c.receive(20 + 12)[20:]
	if size := binary.BigEndian.Uint64(about[2:]); int64(size) != d.size {
		t.Fatalf("the export has %d bytes; want %d", size, d.size)
	}
	c.receive(20)
	return c
}

func (c client) send(data []byte) {
	c.t.Helper()
	if _, err := c.Write(data); err != nil {
		c.t.Fatal(err)
	}
}

func (c client) receive(length int) []byte {
	c.t.Helper()
	data := make([]byte, length)
	if _, err := io.ReadFull(c, data); err != nil {
		c.t.Fatal(err)
	}
	return data
}

func (c client) option(number uint32) {
	message := binary.BigEndian.AppendUint64(nil, magicOption)
	c.send(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(message, number), 0))
}

// request does one and returns the error number of its answer.
func (c client) request(command uint16, offset, length int, data []byte) uint32 {
	c.t.Helper()
	message := binary.BigEndian.AppendUint32(nil, magicRequest)
	message = binary.BigEndian.AppendUint16(message, 0)
	message = binary.BigEndian.AppendUint16(message, command)
	message = binary.BigEndian.AppendUint64(message, 42)
	message = binary.BigEndian.AppendUint64(message, uint64(offset))
	c.send(append(binary.BigEndian.AppendUint32(message, uint32(length)), data...))
	answer := c.receive(16)
	if cookie := binary.BigEndian.Uint64(answer[8:]); cookie != 42 {
		c.t.Fatalf("the answer is to request %d", cookie)
	}
	return binary.BigEndian.Uint32(answer[4:])
}

func (c client) put(offset int, data []byte) {
	c.t.Helper()
	if code := c.request(commandWrite, offset, len(data), data); code != 0 {
		c.t.Fatalf("write: error %d", code)
	}
}

func (c client) get(offset, length int) []byte {
	c.t.Helper()
	if code := c.request(commandRead, offset, length, nil); code != 0 {
		c.t.Fatalf("read: error %d", code)
	}
	return c.receive(length)
}

func newDisk(t *testing.T) *Disk {
	t.Helper()
	from := filepath.Join(t.TempDir(), "from")
	content := make([]byte, 1<<20)
	copy(content[300<<10:], "formatted")
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Create(t.TempDir(), from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func sectors(text string, count int) []byte {
	return bytes.Repeat([]byte(text), count*sectorSize/len(text))
}

func TestCutPower_losesWhatNoFlushCovers(t *testing.T) {
	for name, c := range map[string]struct {
		keep float64
		lies bool
		want string
	}{
		"nothing kept": {0, false, "flushed!"}, "all kept": {1, false, "pending!"},
		"a disk that lies": {0, true, "\x00\x00\x00\x00\x00\x00\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			if c.lies {
				d.Lie()
			}
			power := connect(t, d)
			power.put(4096, sectors("flushed!", 8))
			if code := power.request(commandFlush, 0, 0, nil); code != 0 {
				t.Fatalf("flush: error %d", code)
			}
			power.put(4096, sectors("pending!", 8))
			if got := power.get(4096, 4096); !bytes.Equal(got, sectors("pending!", 8)) {
				t.Fatalf("the machine does not read what it wrote: %q", got[:8])
			}
			_ = power.Close()
			if _, err := d.CutPower(rand.New(rand.NewPCG(1, 1)), c.keep); err != nil {
				t.Fatal(err)
			}
			power = connect(t, d)
			if got := power.get(4096, 4096); !bytes.Equal(got, sectors(c.want, 8)) {
				t.Errorf("after the power cut the disk has %q; want %q", got[:8], c.want)
			}
			if got := power.get(300<<10, 512)[:9]; string(got) != "formatted" {
				t.Errorf("the content that the disk began with is %q", got)
			}
			_ = power.Close()
		})
	}
}

// TestCutPower_keepsAnyPart has a hundred writes of which some are kept, lost and
// torn; each sector is old or new, and both files agree.
func TestCutPower_keepsAnyPart(t *testing.T) {
	d := newDisk(t)
	power := connect(t, d)
	for i := range 100 {
		power.put(i*4096, sectors("12345678", 8))
	}
	_ = power.Close()
	loss, err := d.CutPower(rand.New(rand.NewPCG(7, 7)), 0.5)
	if err != nil || loss.Kept == 0 || loss.Torn == 0 || loss.Lost == 0 || loss.Kept+loss.Torn+loss.Lost != 100 {
		t.Fatalf("%+v, %v", loss, err)
	}
	current, durable := make([]byte, d.size), make([]byte, d.size)
	if err := d.read(0, current); err != nil {
		t.Fatal(err)
	}
	if _, err := d.durable.ReadAt(durable, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(current, durable) {
		t.Error("the machine reads another content than the durable one")
	}
	kept := bytes.Count(current, []byte("12345678"))
	if kept%(sectorSize/8) != 0 || kept <= loss.Kept*8*sectorSize/8 {
		t.Errorf("%d times the new content, with %+v", kept, loss)
	}
}

func TestServe_refusesWhatIsOutsideOfTheDisk(t *testing.T) {
	power := connect(t, newDisk(t))
	for _, offset := range []int{-512, 1 << 20, 1<<20 - 512, 100, 1<<63 - 512} {
		if code := power.request(commandRead, offset, 1024, nil); code != errorInvalid {
			t.Errorf("a read at %d is answered with %d", offset, code)
		}
	}
	_ = power.Close()
}
