// Package surfaces searches everything that programs show for secrets that a test has
// planted: logs, answers, pages, traces, files.
//
// A mark is the part of a planted secret by which it is found: letters and digits, which
// no quoting changes.
package surfaces

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Surfaces are texts that people or programs see, by their names.
type Surfaces map[string][]byte

// Hides fails for each surface that has a mark in any form.
func (s Surfaces) Hides(t testing.TB, marks ...string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s)) {
		for _, mark := range marks {
			if found := Find(s[name], mark); found != "" {
				t.Errorf("%s has %q: %s", name, mark, found)
			}
		}
	}
}

// Shows proves that a search would find what it searches for: for each prefix there is a
// surface whose name begins with it and that has a text that was planted openly.
func (s Surfaces) Shows(t testing.TB, open string, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		var seen []string
		for name, data := range s {
			if strings.HasPrefix(name, prefix) {
				seen = append(seen, name)
				if Find(data, open) != "" {
					seen = nil
					break
				}
			}
		}
		if seen != nil || !s.has(prefix) {
			t.Errorf("no surface %s* has %q: %q; nothing would be found there", prefix, open, seen)
		}
	}
}

func (s Surfaces) has(prefix string) bool {
	for name := range s {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// around is how much of a surface is shown with what was found.
const around = 120

// Find returns the text around a mark: as it is, in base64 at any place of the encoded
// text, in hexadecimal, or interrupted by the ends of lines, quotes and other characters
// that are neither letters nor digits.
func Find(data []byte, mark string) string {
	for _, form := range Forms(mark) {
		if at := bytes.Index(data, []byte(form)); at >= 0 {
			return string(data[max(0, at-around):min(len(data), at+len(form)+around)])
		}
	}
	plain := lineEnds.ReplaceAll(data, nil)
	plain = slices.DeleteFunc(plain, func(b byte) bool { return !isAlphanumeric(b) })
	if at := bytes.Index(plain, []byte(mark)); at >= 0 {
		return "interrupted, " + string(plain[max(0, at-around):min(len(plain), at+len(mark)+around)])
	}
	return ""
}

// lineEnds are those within quoted texts, which may be quoted again.
var lineEnds = regexp.MustCompile(`\\+[nrt]`)

func isAlphanumeric(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// Forms are a mark and its encodings.
func Forms(mark string) []string {
	forms := []string{mark, hex.EncodeToString([]byte(mark)), strings.ToUpper(hex.EncodeToString([]byte(mark)))}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			encoded := encoding.EncodeToString([]byte(strings.Repeat("x", before) + mark))
			// The first and the last characters have bits of what is around the mark.
			forms = append(forms, encoded[(8*before+5)/6:8*(before+len(mark))/6])
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// AddArchive adds each file of an archive, decompressed.
func (s Surfaces) AddArchive(t testing.TB, name string, archive io.Reader) {
	t.Helper()
	plain, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		s[name+" "+header.Name] = append([]byte(header.Name+"\n"), data...)
	}
}
