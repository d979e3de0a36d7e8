package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// shortestSecret is the length in bytes from which a secret is searched in
	// error messages; shorter ones occur in any text.
	shortestSecret = 4
	// shortestLine is that of one line of a secret with several.
	shortestLine = 8
)

// addLine adds a line of a configuration file or of a key.
func (s *Secrets) addLine(line string) {
	if len(line) >= shortestLine {
		s.addValue(line)
	}
	if at := strings.IndexAny(line, "=:"); at >= 0 && IsSecretName(strings.TrimSpace(line[:at])) {
		s.addValue(strings.Trim(line[at+1:], " \t\"'"))
	}
}

// addJSON adds the strings of a JSON object whose names are those of secrets.
func (s *Secrets) addJSON(text string) {
	var tree any
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || json.Unmarshal([]byte(text), &tree) != nil {
		return // hidden as a whole
	}
	s.addTree("", tree)
}

func (s *Secrets) addTree(name string, tree any) {
	switch tree := tree.(type) {
	case map[string]any:
		for name, value := range tree {
			s.addTree(name, value)
		}
	case []any:
		for _, value := range tree {
			s.addTree(name, value)
		}
	case string:
		if IsSecretName(name) {
			s.addValue(tree)
		}
	}
}

// addValue adds a value as it is, without the space around it, which drivers cut off, and
// as the inside of quoted text, JSON, a shell's word and a URL, in hexadecimal and base64.
func (s *Secrets) addValue(value string) {
	trimmed := strings.TrimSpace(value)
	if len(trimmed) < shortestSecret || s.tooMany() {
		return
	}
	forms := []string{
		value, trimmed,
		inside(strconv.Quote(trimmed)), inside(strconv.QuoteToASCII(trimmed)), inside(quotedJSON(trimmed, true)), inside(quotedJSON(trimmed, false)),
		strings.ReplaceAll(trimmed, "'", `'\''`),
		url.QueryEscape(trimmed), url.PathEscape(trimmed), strings.TrimPrefix(url.UserPassword("", trimmed).String(), ":"),
		hex.EncodeToString([]byte(trimmed)), strings.ToUpper(hex.EncodeToString([]byte(trimmed))),
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		forms = append(forms, encoding.EncodeToString([]byte(value)), encoding.EncodeToString([]byte(trimmed)))
		forms = append(forms, withinBase64(encoding.WithPadding(base64.NoPadding), trimmed)...)
	}
	slices.Sort(forms)
	*s = append(*s, slices.Compact(forms)...)
}

// inside is a quoted text without its quotes.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

func quotedJSON(value string, forHTML bool) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(forHTML)
	_ = encoder.Encode(value) // a string has a form
	return strings.TrimSuffix(text.String(), "\n")
}

// withinBase64 are the characters of a text in base64 that depend on the secret alone, if
// the secret is a part of it, as in the user:password of an HTTP request.
func withinBase64(encoding *base64.Encoding, secret string) (forms []string) {
	for before := range 3 { // bytes before the secret, modulo 3
		encoded := encoding.EncodeToString(append(make([]byte, before), secret...))
		first, last := (8*before+5)/6, 8*(before+len(secret))/6
		forms = append(forms, encoded[first:last])
	}
	return forms
}

// joinLines removes line ends, a backslash before them and the space after them. It
// returns where each byte of the result was.
func joinLines(text string) (joined string, places []int) {
	var result strings.Builder
	for at := 0; at < len(text); at++ {
		end := at
		for end < len(text) && (text[end] == '\r' || text[end] == '\\' && end+1 < len(text) && strings.ContainsRune("\r\n", rune(text[end+1]))) {
			end++
		}
		if end < len(text) && text[end] == '\n' {
			for end+1 < len(text) && strings.ContainsRune(" \t\r\n", rune(text[end+1])) {
				end++
			}
			at = end
			continue
		}
		result.WriteByte(text[at])
		places = append(places, at)
	}
	return result.String(), places
}
