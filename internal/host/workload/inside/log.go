package inside

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// A log file has a line for each line of output, as the CRI has them: the
// time, the stream, F for a whole line or P for a part of one, and the text.

// MaximumLine is the length above which a line is split, in bytes.
const MaximumLine = 16 << 10

// LogSuffix ends the names of log files; AsideSuffix those of the ones that
// were put aside because they were full.
const (
	LogSuffix   = ".log"
	AsideSuffix = ".log.1"
)

// logWriter writes the streams of one attempt into its log. What cannot be
// written, because the disk is full, is lost: the container continues.
type logWriter struct {
	mu      sync.Mutex
	root    *os.Root
	attempt string
	limit   int64
	file    *os.File
	size    int64
}

func newLogWriter(logs string, attempt int, limit int64) (*logWriter, error) {
	root, err := os.OpenRoot(logs)
	if err != nil {
		return nil, err
	}
	return &logWriter{root: root, attempt: strconv.Itoa(attempt), limit: limit}, nil
}

// pump copies a stream until its end.
func (w *logWriter) pump(stream string, source io.Reader) {
	reader := bufio.NewReaderSize(source, MaximumLine)
	var line []byte
	for {
		text, err := reader.ReadSlice('\n')
		if len(text) > 0 {
			mark, content := "F", bytes.TrimSuffix(text, []byte{'\n'})
			if errors.Is(err, bufio.ErrBufferFull) {
				mark = "P"
			}
			line = time.Now().UTC().AppendFormat(line[:0], time.RFC3339Nano)
			line = append(line, ' ')
			line = append(append(append(line, stream...), ' '), mark...)
			line = append(append(append(line, ' '), content...), '\n')
			w.write(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (w *logWriter) write(line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil && w.size+int64(len(line)) > w.limit {
		_ = w.file.Close()
		w.file = nil
		_ = w.root.Rename(w.attempt+LogSuffix, w.attempt+AsideSuffix)
	}
	if w.file == nil {
		file, err := w.root.OpenFile(w.attempt+LogSuffix, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
		if err != nil {
			return
		}
		w.file, w.size = file, sizeOf(file)
	}
	n, err := w.file.Write(line)
	w.size += int64(n)
	if err != nil && n > 0 {
		// A partial line would corrupt the next one.
		if w.file.Truncate(w.size-int64(n)) == nil {
			w.size -= int64(n)
		}
	}
}

func sizeOf(file *os.File) int64 {
	info, err := file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}
