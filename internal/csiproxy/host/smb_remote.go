package host

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

const (
	maxRemote   = 260 // characters of a path, as in the rest of the API
	maxShare    = 80  // MS-SRVS, 2.2.4.22: NNLEN
	maxUsername = 256
	maxPassword = 512
	// neverInRemote are the characters that no path has ([MS-FSCC] 2.1.5), apart from
	// the separators. A server may reject others in a share's name.
	neverInRemote = "\":|<>?*"
)

// remote is a share, or a directory on it.
type remote struct {
	server, share string // lower-case
	below         string // the directories, as the caller wrote them; "" for the share itself
}

// parseRemote reads \\server\share\directory…, with slashes or backslashes.
func parseRemote(text string) (remote, error) {
	invalid := func(reason string) (remote, error) {
		return remote{}, fmt.Errorf(`%w: remote path %.100q: %s; give \\server\share, or a directory on it`,
			backend.ErrInvalid, text, reason)
	}
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxRemote {
		return invalid(fmt.Sprintf("it has more than %d characters, or is not text", maxRemote))
	}
	path, isRemote := strings.CutPrefix(strings.ReplaceAll(text, "/", `\`), `\\`)
	if !isRemote {
		return invalid("it names no server")
	}
	if strings.ContainsAny(path, neverInRemote) || strings.ContainsFunc(path, isControl) {
		return invalid("it has one of the characters " + neverInRemote + " or a control character")
	}
	names := strings.Split(strings.TrimSuffix(path, `\`), `\`)
	if len(names) < 2 {
		return invalid("it names no share")
	}
	for _, name := range names {
		if name == "" || strings.Trim(name, ".") == "" || strings.HasSuffix(name, ".") || strings.TrimSpace(name) != name {
			return invalid(fmt.Sprintf("%q is not a name", name))
		}
	}
	server, share := strings.ToLower(names[0]), strings.ToLower(names[1])
	if !isHostName(server) {
		return invalid(fmt.Sprintf("%q is not a server", server))
	}
	// These three are not directories of files on any server.
	if len(share) > maxShare || share == "pipe" || share == "mailslot" || share == "ipc$" {
		return invalid(fmt.Sprintf("%q is not a share", share))
	}
	return remote{server, share, strings.Join(names[2:], `\`)}, nil
}

// root is the share, as it is mapped.
func (r remote) root() string { return `\\` + r.server + `\` + r.share }

// String is the whole path without a last backslash.
func (r remote) String() string {
	if r.below == "" {
		return r.root()
	}
	return r.root() + `\` + r.below
}

// linkTarget is the target of a link. Container runtimes follow it only with the last
// backslash.
func (r remote) linkTarget() string { return r.String() + `\` }

// checkSMBUser checks credentials; its errors contain none of them. An empty user
// name is rejected: Windows would log in as the machine itself.
func checkSMBUser(mount api.SMBMount) error {
	if mount.Username == "" || len(mount.Username) > maxUsername || strings.ContainsFunc(mount.Username, isControl) {
		return fmt.Errorf("%w: the user name of an SMB share has %d bytes or unprintable ones; give 1 to %d",
			backend.ErrInvalid, len(mount.Username), maxUsername)
	}
	if password := mount.Password.Reveal(); len(password) > maxPassword || strings.ContainsRune(password, 0) {
		return fmt.Errorf("%w: the password of an SMB share has %d bytes or a NUL; at most %d are possible",
			backend.ErrInvalid, len(password), maxPassword)
	}
	return nil
}
