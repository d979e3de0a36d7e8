package page

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// sentence begins with a capital letter and ends with a full stop. A word that is an
// identifier keeps its letters.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if strings.ContainsAny(text[len(text)-1:], ".!?") {
		return text
	}
	return text + "."
}
