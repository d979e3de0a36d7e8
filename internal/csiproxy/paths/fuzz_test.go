package paths_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
)

// forbidden is an independent oracle: the rules of paths as one pattern over the
// text, which knows nothing of components.
var forbidden = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`[/"*<>?|[:cntrl:]]`,               // no name can have them
	`^.{2,}:`,                          // a colon behind the drive's
	`\\\\`,                             // an empty component
	`[. ](\\|$)`,                       // removed by Windows; also . and ..
	`~[0-9]`,                           // a short name
	`\\(con|prn|aux|nul)[ ]*(\.|\\|$)`, // devices
	`\\(conin\$|conout\$)[ ]*(\.|\\|$)`,
	`\\(com|lpt)[1-9¹²³][ ]*(\.|\\|$)`,
}, "|"))

// isBelow is an independent oracle for containment.
func isBelow(text string) bool {
	return strings.EqualFold(text, kubelet) || len(text) > len(kubelet) &&
		strings.EqualFold(text[:len(kubelet)], kubelet) && text[len(kubelet)] == '\\'
}

func FuzzCheck(f *testing.F) {
	for _, row := range rows {
		f.Add(row.text)
	}
	r := rules(f)
	f.Fuzz(func(t *testing.T, text string) {
		path, err := r.Check("path", text)
		if err != nil {
			return
		}
		got := path.String()
		if !isBelow(got) || !isBelow(text) {
			t.Errorf("%q became %q, which is not below the root", text, got)
		}
		if forbidden.MatchString(got) {
			t.Errorf("%q became %q, which has %q", text, got, forbidden.FindString(got))
		}
		if n := len(utf16.Encode([]rune(text))); n > 260 {
			t.Errorf("%q has %d units", text, n)
		}
		again, err := r.Check("path", got)
		if err != nil || again != path || again.Key() != path.Key() {
			t.Errorf("%q became %q, and that %q, %v", text, got, again, err)
		}
		if joined := path.Root() + strings.Repeat(`\`, min(1, len(path.Components()))) + strings.Join(path.Components(), `\`); joined != got {
			t.Errorf("the components of %q make %q", got, joined)
		}
	})
}

func FuzzNormalize(f *testing.F) {
	for _, row := range rows {
		f.Add(row.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := paths.Normalize(text)
		if strings.Contains(got, "/") || paths.Normalize(got) != got {
			t.Errorf("%q became %q, and that %q", text, got, paths.Normalize(got))
		}
		if rest := strings.TrimPrefix(got, "c:"); rest != strings.ReplaceAll(text, "/", `\`) && got != strings.ReplaceAll(text, "/", `\`) {
			t.Errorf("%q became %q", text, got)
		}
		if endpoint, err := paths.ParseEndpoint(text); err == nil {
			if again, err := paths.ParseEndpoint("unix://" + endpoint); err != nil || again != endpoint {
				t.Errorf("the endpoint %q is %q, and that %q, %v", text, endpoint, again, err)
			}
			if forbidden.MatchString(endpoint) {
				t.Errorf("the endpoint %q is %q", text, endpoint)
			}
		}
	})
}
