package server

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// descriptor admits SYSTEM and the Administrators group and, being protected,
// inherits nothing. ContainerAdministrator counts as an administrator.
const descriptor = "D:P(A;;GA;;;SY)(A;;GA;;;BA)"

// readWrite are the rights that a client needs to open a pipe. go-winio's clients request
// GENERIC_WRITE, which includes FILE_CREATE_PIPE_INSTANCE, the right to make another
// instance of the pipe: so an admitted account could also pose as the proxy.
const readWrite = "GRGW"

// sidForm is the text form of a SID: revision 1, an authority, and 1 to 15
// subauthorities.
var sidForm = regexp.MustCompile(`^(?i:S)-1-([0-9]{1,15})((?:-[0-9]{1,10}){1,15})$`)

// openGroups are groups that would open the pipe to every process of the machine or of
// its logged-on users, including pods.
func openGroups() map[string]string {
	return map[string]string{
		"S-1-1-0":      "Everyone",
		"S-1-2-0":      "all users who are logged on locally",
		"S-1-5-2":      "all users from the network",
		"S-1-5-4":      "all users who are logged on interactively",
		"S-1-5-7":      "Anonymous Logon",
		"S-1-5-11":     "Authenticated Users",
		"S-1-5-32-545": "Users",
		"S-1-5-32-546": "Guests",
		"S-1-5-93-0":   "all containers",
		"S-1-5-93-2-2": "ContainerUser",
		"S-1-15-2-1":   "all application packages",
	}
}

// Descriptor returns the security descriptor of the pipes in SDDL: for SYSTEM,
// Administrators, and the given SIDs. An error wraps backend.ErrInvalid.
func Descriptor(sids []string) (string, error) {
	text := strings.Builder{}
	text.WriteString(descriptor)
	seen := map[string]bool{}
	for _, sid := range sids {
		canonical, err := parseSID(sid)
		if err != nil {
			return "", err
		}
		if group, ok := openGroups()[canonical]; ok {
			return "", fmt.Errorf("%w: SID %s is %s; an account that can open the pipe has full control of the machine",
				backend.ErrInvalid, canonical, group)
		}
		if !seen[canonical] {
			seen[canonical] = true
			fmt.Fprintf(&text, "(A;;%s;;;%s)", readWrite, canonical)
		}
	}
	return text.String(), nil
}

// parseSID checks a SID and returns it without leading zeros in its numbers, so that one
// SID has one spelling.
func parseSID(text string) (string, error) {
	parts := sidForm.FindStringSubmatch(text)
	if parts == nil {
		return "", fmt.Errorf("%w: %.200q is not a SID such as S-1-5-21-1004336348-1177238915-682003330-512",
			backend.ErrInvalid, text)
	}
	authority, err := strconv.ParseUint(parts[1], 10, 48)
	if err != nil {
		return "", fmt.Errorf("%w: authority of the SID %.200q: %w", backend.ErrInvalid, text, err)
	}
	canonical := fmt.Sprintf("S-1-%d", authority)
	for part := range strings.SplitSeq(parts[2][1:], "-") {
		number, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return "", fmt.Errorf("%w: a part of the SID %.200q: %w", backend.ErrInvalid, text, err)
		}
		canonical += "-" + strconv.FormatUint(number, 10)
	}
	return canonical, nil
}
