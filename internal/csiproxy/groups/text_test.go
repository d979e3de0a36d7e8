package groups

import "testing"

func TestText_isUTF8AndOtherwiseTheSame(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"vol0123 é":     "vol0123 é",
		"a\x00b":        "a\x00b", // UTF-8, if odd
		"\xe9t\xe9":     "\uFFFDt\uFFFD",
		"\xff\xff tail": "\uFFFD tail",
	} {
		if got := validText(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
