package win32

import (
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// SMBCredential is the parameter Credential of MSFT_SmbGlobalMapping.Create:
// user and password with a colon between. A backslash or colon of the user's name has a
// backslash before it; the password is unchanged.
func SMBCredential(user string, password api.Secret) api.Secret {
	escaped := strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(user)
	return api.Secret(escaped + ":" + password.Reveal())
}
