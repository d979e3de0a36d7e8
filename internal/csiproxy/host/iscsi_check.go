package host

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

const (
	defaultPortalPort = 3260
	maxPort           = 1<<16 - 1
	maxPortalAddress  = 255 // of a DNS name
	maxISCSIName      = 223 // RFC 7143, 4.2.7.1
	maxCHAPName       = 255
	// CHAP secrets have 12 to 16 bytes without IPsec (RFC 7143, 9.2.1, and the
	// Windows initiator's own limit).
	minCHAPSecret = 12
	maxCHAPSecret = 16
)

// checkPortal sets the default port of a portal and rejects invalid addresses. A
// port of more than 16 bits is rejected, not truncated.
func checkPortal(p api.Portal) (api.Portal, error) {
	if p.Port > maxPort {
		return p, fmt.Errorf("%w: port %d of a target portal; ports end at %d", backend.ErrInvalid, p.Port, maxPort)
	}
	if p.Port == 0 {
		p.Port = defaultPortalPort
	}
	if address, err := netip.ParseAddr(p.Address); err == nil && consistsOf(address.Zone(), "-_.") {
		if address.IsUnspecified() || address.IsMulticast() {
			return p, fmt.Errorf("%w: %.100q cannot be the address of a target portal", backend.ErrInvalid, p.Address)
		}
		return p, nil
	}
	if !isHostName(p.Address) {
		return p, fmt.Errorf("%w: address %.100q of a target portal; give an IP address or a host name, without a port",
			backend.ErrInvalid, p.Address)
	}
	return p, nil
}

// isHostName reports whether a text can be a DNS or NetBIOS name.
func isHostName(name string) bool {
	if name == "" || len(name) > maxPortalAddress {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") ||
			!consistsOf(label, "-_") {
			return false
		}
	}
	return true
}

// consistsOf reports whether a text has only ASCII letters, digits and the others.
func consistsOf(text, others string) bool {
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(others, c) >= 0:
		default:
			return false
		}
	}
	return true
}

func isDigits(text string) bool { return strings.Trim(text, "0123456789") == "" }

// checkIQN accepts the three forms of names (RFC 7143, 4.2.7): iqn.YYYY-MM.DOMAIN
// with or without :TEXT, eui. with 16 and naa. with 16 or 32 hexadecimal digits.
func checkIQN(name string) error {
	kind, rest, _ := strings.Cut(name, ".")
	good := false
	switch strings.ToLower(kind) {
	case "iqn":
		date, domain, _ := strings.Cut(rest, ".")
		authority, _, _ := strings.Cut(domain, ":")
		good = len(date) == 7 && isDigits(date[:4]) && date[4] == '-' && isDigits(date[5:]) && date[5:] >= "01" &&
			date[5:] <= "12" &&
			authority != "" && consistsOf(domain, ".:-_")
	case "eui":
		good = len(rest) == 16 && isHex(rest)
	case "naa":
		good = (len(rest) == 16 || len(rest) == 32) && isHex(rest)
	}
	if !good || len(name) > maxISCSIName {
		return fmt.Errorf("%w: target name %.100q; give iqn.YYYY-MM.DOMAIN:TEXT, eui.DIGITS or naa.DIGITS",
			backend.ErrInvalid, name)
	}
	return nil
}

func isHex(text string) bool { return strings.Trim(text, "0123456789abcdefABCDEF") == "" }

// checkLogin checks a login's credentials. Its errors contain none of them.
func checkLogin(login api.ISCSILogin) error {
	switch login.Auth {
	case api.NoAuth:
		return nil
	case api.OneWayCHAP, api.MutualCHAP:
	default:
		return fmt.Errorf("%w: authentication type %d; known are 0 none, 1 one-way CHAP, 2 mutual CHAP",
			backend.ErrInvalid, login.Auth)
	}
	if login.Username == "" || len(login.Username) > maxCHAPName || strings.ContainsFunc(login.Username, isControl) {
		return fmt.Errorf("%w: the CHAP user name has %d bytes or unprintable ones; give 1 to %d",
			backend.ErrInvalid, len(login.Username), maxCHAPName)
	}
	return checkCHAPSecret(login.Secret)
}

func checkCHAPSecret(secret api.Secret) error {
	if n := len(secret.Reveal()); n < minCHAPSecret || n > maxCHAPSecret {
		return fmt.Errorf("%w: the CHAP secret has %d bytes; Windows takes %d to %d", backend.ErrInvalid, n,
			minCHAPSecret, maxCHAPSecret)
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
