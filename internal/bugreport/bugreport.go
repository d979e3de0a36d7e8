// Package bugreport makes the archive of 'holdfast bugreport': what a developer asks for
// first about a machine. Everything in it is redacted, and it can be listed before it is
// written.
package bugreport

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// Entry is one file of the archive.
type Entry struct {
	// Name is its path, and About a few words for the list.
	Name, About string
	Data        []byte
	// Missing is why it could not be read; the archive has the reason instead.
	Missing error
}

// Source reads one entry. An error is kept as the reason why it is missing.
type Source struct {
	Name, About string
	Read        func(ctx context.Context) ([]byte, error)
}

// Static is a source whose content is known.
func Static(name, about string, data []byte) []Source {
	return []Source{{name, about, func(context.Context) ([]byte, error) { return data, nil }}}
}

// limit bounds one source: a driver or a filesystem that does not answer must not prevent
// the report about it.
const limit = 15 * time.Second

// maximumEntry bounds one entry, in bytes; of a longer one, the end is kept.
const maximumEntry = 8 << 20

// Collect reads the sources one after the other, and redacts what they have.
func Collect(ctx context.Context, sources []Source) []Entry {
	entries := make([]Entry, 0, len(sources))
	for _, source := range sources {
		data, err := readWithin(ctx, source)
		if len(data) > maximumEntry {
			data = append([]byte("(the beginning is left out)\n"), data[len(data)-maximumEntry:]...)
		}
		entries = append(entries, Entry{Name: source.Name, About: source.About, Data: Text(data), Missing: err})
	}
	return entries
}

// errNoAnswer is of a source that did not answer in time.
var errNoAnswer = errors.New("it did not answer within 15 s")

// readWithin leaves a source that hangs behind.
func readWithin(ctx context.Context, source Source) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	type answer struct {
		data []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		data, err := source.Read(ctx)
		answers <- answer{data, err}
	}()
	select {
	case got := <-answers:
		return got.data, got.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// List writes what the archive will have.
func List(out io.Writer, entries []Entry) error {
	for _, entry := range entries {
		size := fmt.Sprintf("%d bytes", len(entry.Data))
		if entry.Missing != nil {
			reason, _, _ := strings.Cut(entry.Missing.Error(), "\n")
			size = "missing: " + string(Text([]byte(reason)))
		}
		if _, err := fmt.Fprintf(out, "%-28s %s (%s)\n", entry.Name, entry.About, size); err != nil {
			return err
		}
	}
	return nil
}

// Write writes the archive, a compressed tar with one directory.
func Write(out io.Writer, directory string, now time.Time, entries []Entry) error {
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	for _, entry := range entries {
		name, data := entry.Name, entry.Data
		if entry.Missing != nil {
			name, data = name+".missing", append(Text([]byte(entry.Missing.Error())), '\n')
		}
		header := &tar.Header{Name: path.Join(directory, name), Mode: 0o600, Size: int64(len(data)), ModTime: now, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(data); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}
