package redact

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// secretsOf are the forms of several secrets.
func secretsOf(values ...string) (s Secrets) {
	for _, value := range values {
		s.Add(value)
	}
	return s
}

// What programs make of a secret: other quotes, encodings, and lines.
func TestText_inEncodingsAndLines(t *testing.T) {
	const (
		secret = "it's <me> & \u00fc/+42"
		key    = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEA\n-----END KEY-----\n"
		long   = "a-secret-of-more-than-seventy-six-bytes-which-base64-tools-write-in-more-lines-than-one"
	)
	secrets := secretsOf(secret, key, long, "user = someone\npassword: \"of-a-line\"\n",
		`{"endpoint":"https://storage","auth":[{"apiToken":"of-an-object"}]}`)
	encoded := base64.StdEncoding.EncodeToString([]byte(long))
	for text, want := range map[string]string{
		"base64 " + base64.StdEncoding.EncodeToString([]byte(secret)) + ".":       "base64 (redacted).",
		"base64 " + base64.URLEncoding.EncodeToString([]byte(secret)) + ".":       "base64 (redacted).",
		"of a file " + base64.StdEncoding.EncodeToString([]byte(key)) + ".":       "of a file (redacted).",
		"hex " + hex.EncodeToString([]byte(secret)) + ".":                         "hex (redacted).",
		fmt.Sprintf("HEX %X.", secret):                                            "HEX (redacted).",
		fmt.Sprintf("%q, %+q", secret, secret):                                    `"(redacted)", "(redacted)"`,
		`{"p":"it's \u003cme\u003e \u0026 ` + "\u00fc/+42\"}":                     `{"p":"(redacted)"}`,
		`login 'it'\''s <me> & ` + "\u00fc/+42'":                                  "login '(redacted)'",
		"mount\n  MIIEvQIBADANBgkqhkiG9w0BAQ\n  | EFAASCBKcwggSjAgEA\nhas failed": "mount\n  (redacted)\n  | (redacted)\nhas failed",
		"of-a-line of someone":                                                    "(redacted) of someone",
		"token of-an-object of https://storage":                                   "token (redacted) of https://storage",
		"$ " + encoded[:76] + "\n" + encoded[76:] + "\n":                          "$ (redacted)\n",
		"$ " + long[:40] + "\\\r\n    " + long[40:] + " x":                        "$ (redacted) x",
		long + "\n" + long[:20] + "\n" + long[20:] + ".":                          "(redacted)\n(redacted).",
		"two\n  lines\\x\r":                                                       "two\n  lines\\x\r",
	} {
		if got := secrets.Text(text); got != want {
			t.Errorf("%s\nis   %s\nwant %s", text, got, want)
		}
	}
}

// The password of an HTTP request is a part of what is encoded; at most the characters that
// it shares with its neighbours stay.
func TestText_insideOfBase64(t *testing.T) {
	secrets := secretsOf("hunter-of-1000")
	for _, user := range []string{"a", "ab", "abc", "abcd"} {
		for _, after := range []string{"", "\n", "\nx"} {
			encoded := base64.StdEncoding.EncodeToString([]byte(user + ":hunter-of-1000" + after))
			got := secrets.Text(encoded)
			if neighbours := base64.StdEncoding.EncodedLen(len(user)+1) + base64.StdEncoding.EncodedLen(len(after)+2); !strings.Contains(got, Hidden) || len(got) > len(Hidden)+neighbours {
				t.Errorf("%s is %s", encoded, got)
			}
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a secret in\n a text", "secret")
	f.Add("wrap\\\r\n ped", "wrapped")
	f.Add("\\\n", "\\\n\\\n")
	f.Fuzz(func(t *testing.T, text, secret string) {
		got := secretsOf(secret).Text(text)
		// What replaces a secret may complete another one with what is around it.
		if trimmed := strings.TrimSpace(secret); len(trimmed) >= shortestSecret && !strings.Contains(got, Hidden) && strings.Contains(got, trimmed) {
			t.Errorf("%q has %q of %q", got, trimmed, text)
		}
		if again := Secrets(nil).Text(text); again != text {
			t.Errorf("without secrets %q became %q", text, again)
		}
	})
}

// A search that would occupy a processor for minutes hides the text as a whole.
func TestText_hidesWhatCostsTooMuchToSearch(t *testing.T) {
	secrets := secretsOf("of-a-short-text")
	if got := secrets.Text("the secret " + strings.Repeat("x", mostWork/len(secrets))); got != hiddenText {
		t.Errorf("of a text that is too long, %d bytes are shown", len(got))
	}
	secrets = make(Secrets, mostForms)
	secrets.Add("the-last-that-is-kept")
	kept := len(secrets)
	secrets.Add("of-a-secret-too-many")
	if got := secrets.Text("of-a-secret-too-many"); got != hiddenText || len(secrets) != kept {
		t.Errorf("with %d forms, and %d before the last secret, the text is %q", len(secrets), kept, got)
	}
}

// What replaces a secret is not searched again, and secrets that overlap are hidden together.
func TestText_hidesOverlappingSecretsTogether(t *testing.T) {
	secrets := secretsOf("abcd-efgh", "efgh-ijkl", "dact")
	if got, want := secrets.Text("<abcd-efgh-ijkl>abcd-efghdact."), "<(redacted)>(redacted)."; got != want {
		t.Errorf("the text is %q; want %q", got, want)
	}
}
