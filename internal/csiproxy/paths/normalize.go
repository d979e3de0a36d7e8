package paths

import (
	"fmt"
	"strings"
)

// Normalize converts a path that Go, fsnotify or a configuration spelled with slashes,
// or without its drive, to a path of Windows, as the kubelet does: every slash becomes a
// backslash, and a leading one gets c: before it. A path that begins with two is a share
// or a device, and stays as it is, as in the kubelet's hostPath volumes. Normalize checks
// nothing.
func Normalize(text string) string {
	text = strings.ReplaceAll(text, "/", separator)
	if strings.HasPrefix(text, separator) && !strings.HasPrefix(text, `\\`) {
		return "c:" + text
	}
	return text
}

// maxSocketBytes is the longest path in sockaddr_un, with its NUL (afunix.h,
// UNIX_PATH_MAX).
const maxSocketBytes = 107

// ParseEndpoint returns the path of a CSI endpoint on Windows. It takes a path with
// or without the scheme unix, with or without its two slashes: unix:/csi/csi.sock,
// unix:///csi/csi.sock, unix://C:\csi\csi.sock, unix:///C:/csi/csi.sock and
// C:\csi\csi.sock. A drive is not the authority of a URL, so this function
// parses the form; separators may be doubled, as in YAML that did not need it.
func ParseEndpoint(text string) (string, error) {
	const field = "endpoint"
	rest := text
	if len(text) > 5 && strings.EqualFold(text[:5], "unix:") {
		rest = strings.TrimPrefix(text[5:], "//")
	}
	rest = collapse(strings.ReplaceAll(rest, "/", separator))
	if len(rest) > 2 && rest[0] == '\\' && isLetter(rest[1]) && rest[2] == ':' {
		rest = rest[1:] // of unix:///C:/csi
	}
	if strings.HasPrefix(rest, separator) {
		rest = "C:" + rest
	}
	path, err := parse(field, rest)
	if err != nil {
		return "", fmt.Errorf(`%w (the endpoint is %.300q; write unix:///csi/csi.sock or unix://C:\csi\csi.sock)`, err, text)
	}
	if len(path.components) == 0 {
		return "", invalid(field, text, "it names a drive; name the socket")
	}
	if len(rest) > maxSocketBytes {
		return "", invalid(field, text, "it is longer than the 107 bytes of a socket's address; choose a shorter one")
	}
	return strings.ToUpper(path.drive) + separator + strings.Join(path.components, separator), nil
}

// collapse makes runs of separators one, but for two at the beginning that name a
// share or a device.
func collapse(text string) string {
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		if i < 2 || text[i] != '\\' || text[i-1] != '\\' {
			out = append(out, text[i])
		}
	}
	return string(out)
}
