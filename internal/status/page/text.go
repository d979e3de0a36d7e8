package page

import (
	"fmt"
	"strings"
	"time"
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

// ageText is how long ago something was, in whole minutes, hours or days: a row of a table
// is sent again when its text changes.
func ageText(at, now time.Time) string {
	switch age := now.Sub(at); {
	case at.IsZero():
		return ""
	case age < time.Minute:
		return "<1m"
	case age < 2*time.Hour:
		return fmt.Sprintf("%dm", int(age.Minutes()))
	case age < 48*time.Hour:
		return fmt.Sprintf("%dh", int(age.Hours()))
	default:
		return fmt.Sprintf("%dd", int(age.Hours()/24))
	}
}
