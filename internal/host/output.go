package host

import (
	"bytes"
	"io"
	"os"
	"sync"
	"syscall"
)

// Prefixer writes whole lines with a name before each. Several may share a
// writer; a line longer than maximumLine is split.
type Prefixer struct {
	mu     sync.Mutex
	out    io.Writer
	prefix []byte
	line   []byte
}

const maximumLine = 64 << 10

// NewPrefixer makes a Prefixer with a name; "" for lines without one.
func NewPrefixer(out io.Writer, name string) *Prefixer {
	if name == "" {
		return &Prefixer{out: out}
	}
	return &Prefixer{out: out, prefix: []byte("[" + name + "] ")}
}

// Write takes a part of the output.
func (p *Prefixer) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := len(data)
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			p.line = append(p.line, data...)
			data = nil
			if len(p.line) < maximumLine {
				break
			}
		} else {
			p.line = append(p.line, data[:end]...)
			data = data[end+1:]
		}
		if err := p.emit(); err != nil {
			return 0, err
		}
	}
	return written, nil
}

// emit writes one line with a single call, so that lines do not mix.
func (p *Prefixer) emit() error {
	text := append(append(append([]byte{}, p.prefix...), p.line...), '\n')
	p.line = p.line[:0]
	_, err := p.out.Write(text)
	return err
}

// Flush writes a last line that has no end.
func (p *Prefixer) Flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.line) == 0 {
		return nil
	}
	return p.emit()
}

// broadcast sends every signal to every container that runs.
type broadcast struct {
	mu          sync.Mutex
	subscribers []chan os.Signal
	earlier     []os.Signal // to end: for who starts to listen later
	done        chan struct{}
}

func newBroadcast(signals <-chan os.Signal, containers int) *broadcast {
	b := &broadcast{done: make(chan struct{}), subscribers: make([]chan os.Signal, 0, containers)}
	go func() {
		for {
			select {
			case <-b.done:
				return
			case sent := <-signals:
				b.send(sent)
			}
		}
	}()
	return b
}

func (b *broadcast) send(sent os.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch sent {
	case os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		b.earlier = append(b.earlier, sent)
	}
	for _, subscriber := range b.subscribers {
		select {
		case subscriber <- sent:
		default: // full: that container has ended
		}
	}
}

func (b *broadcast) subscribe() <-chan os.Signal {
	b.mu.Lock()
	defer b.mu.Unlock()
	channel := make(chan os.Signal, 16)
	for _, sent := range b.earlier[:min(len(b.earlier), cap(channel))] {
		channel <- sent
	}
	b.subscribers = append(b.subscribers, channel)
	return channel
}

func (b *broadcast) stop() { close(b.done) }
