package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// What is missing is in the list, and in the archive as its reason.
func TestWrite_hasWhatIsListed(t *testing.T) {
	entries := Collect(t.Context(), []Source{
		{"a.txt", "the first", func(context.Context) ([]byte, error) { return []byte("password=marker"), nil }},
		{"b.txt", "the second", func(context.Context) ([]byte, error) { return nil, errors.New("https://u:marker@x is gone") }},
	})
	var list, archive bytes.Buffer
	if err := errors.Join(List(&list, entries), Write(&archive, "report", time.Unix(1, 0), entries)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a.txt ", "the first (19 bytes)", "b.txt ", "missing: https://(redacted)@x is gone"} {
		if !strings.Contains(list.String(), want) {
			t.Errorf("the list has no %q: %s", want, &list)
		}
	}
	files := unpack(t, &archive)
	if files["report/a.txt"] != "password=(redacted)" || files["report/b.txt.missing"] != "https://(redacted)@x is gone\n" || len(files) != 2 {
		t.Errorf("the archive has %q", files)
	}
}

func unpack(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(data)
	}
}

func TestCollect_leavesASourceThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	block := make(chan struct{})
	defer close(block)
	entries := Collect(ctx, []Source{{"a", "hangs", func(context.Context) ([]byte, error) {
		<-block
		return nil, nil
	}}})
	if !errors.Is(entries[0].Missing, context.Canceled) {
		t.Errorf("got %v", entries[0].Missing)
	}
}
