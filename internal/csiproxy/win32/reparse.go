package win32

import "strings"

// Reparse is REPARSE_DATA_BUFFER: the data of a link, junction or mounted folder.
type Reparse struct {
	Tag uint32 // ReparseTag…
	// Substitute is its target in the kernel's form, such as \??\C:\x; Print is for
	// display, and may be any text.
	Substitute, Print string
	// Relative: Substitute is relative to the directory of the symbolic link.
	Relative bool
	// Data is the data of any other tag.
	Data []byte
}

const (
	reparseHeader   = 8
	mountPointFixed = 8
	symlinkFixed    = 12
	symlinkRelative = 1 // SYMLINK_FLAG_RELATIVE
	reparseMaxData  = 16*1024 - reparseHeader
	kernelPrefix    = `\??\`
	kernelUNC       = `\??\UNC\`
	kernelVolume    = `\??\Volume{`
)

// ReparseSize is the largest size of reparse data, in bytes
// (MAXIMUM_REPARSE_DATA_BUFFER_SIZE).
const ReparseSize = 16 * 1024

// NewSymlink is the data of a symbolic link to an absolute path.
func NewSymlink(target string) Reparse {
	return Reparse{Tag: ReparseTagSymlink, Substitute: kernelPath(target), Print: target}
}

// NewMountPoint is the data of a mounted folder of a volume (\\?\Volume{GUID}\),
// or of a junction to a directory.
func NewMountPoint(target string) Reparse {
	r := Reparse{Tag: ReparseTagMountPoint, Substitute: kernelPath(target)}
	if !strings.HasPrefix(r.Substitute, kernelVolume) {
		r.Print = target
	}
	return r
}

// kernelPath is a path of Win32 in the kernel's form.
func kernelPath(path string) string {
	switch {
	case strings.HasPrefix(path, `\\?\`), strings.HasPrefix(path, `\\.\`):
		return kernelPrefix + path[4:]
	case strings.HasPrefix(path, `\\`):
		return kernelUNC + path[2:]
	}
	return kernelPrefix + path
}

// Target is the target as a path of Win32, from Substitute: Print decides nothing. ""
// for other tags.
func (r Reparse) Target() string {
	if r.Relative {
		return r.Substitute
	}
	switch {
	case hasPrefixFold(r.Substitute, kernelVolume):
		return `\\?\` + r.Substitute[len(kernelPrefix):]
	case hasPrefixFold(r.Substitute, kernelUNC):
		return `\\` + r.Substitute[len(kernelUNC):]
	case strings.HasPrefix(r.Substitute, kernelPrefix):
		return r.Substitute[len(kernelPrefix):]
	}
	return r.Substitute
}

func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// IsVolume reports whether it is the mounted folder of a volume; Target is the
// volume then.
func (r Reparse) IsVolume() bool {
	return r.Tag == ReparseTagMountPoint && hasPrefixFold(r.Substitute, kernelVolume)
}

// Encode returns the structure's bytes. Names that do not fit into reparse data are
// truncated to a length that Windows rejects.
func (r Reparse) Encode() []byte {
	body := r.Data
	switch r.Tag {
	case ReparseTagMountPoint:
		body = r.names(mountPointFixed)
	case ReparseTagSymlink:
		body = r.names(symlinkFixed)
		le.PutUint32(body[8:], uint32(bit(r.Relative)))
	}
	body = body[:min(len(body), reparseMaxData)]
	data := make([]byte, reparseHeader, reparseHeader+len(body))
	le.PutUint32(data, r.Tag)
	le.PutUint16(data[4:], uint16(len(body)))
	return append(data, body...)
}

// names are the two names behind fixed bytes, each with a NUL that its length
// does not count.
func (r Reparse) names(fixed int) []byte {
	substitute, printed := widen(r.Substitute), widen(r.Print)
	body := make([]byte, fixed, fixed+len(substitute)+len(printed)+4)
	le.PutUint16(body[2:], uint16(len(substitute)))
	le.PutUint16(body[4:], uint16(len(substitute)+2))
	le.PutUint16(body[6:], uint16(len(printed)))
	body = append(append(body, substitute...), 0, 0)
	return append(append(body, printed...), 0, 0)
}

// DecodeReparse reads the structure's bytes.
func DecodeReparse(data []byte) (Reparse, error) {
	const name = "REPARSE_DATA_BUFFER"
	if err := atLeast(name, data, reparseHeader); err != nil {
		return Reparse{}, err
	}
	r := Reparse{Tag: le.Uint32(data)}
	size := int(le.Uint16(data[4:]))
	if size > len(data)-reparseHeader {
		return Reparse{}, malformed(name, "%d bytes of data in %d", size, len(data)-reparseHeader)
	}
	body := data[reparseHeader : reparseHeader+size]
	fixed := mountPointFixed
	switch r.Tag {
	case ReparseTagMountPoint:
	case ReparseTagSymlink:
		fixed = symlinkFixed
	default:
		r.Data = append([]byte(nil), body...)
		return r, nil
	}
	if len(body) < fixed {
		return Reparse{}, malformed(name, "%d bytes of data", len(body))
	}
	if r.Tag == ReparseTagSymlink {
		r.Relative = le.Uint32(body[8:])&symlinkRelative != 0
	}
	var err error
	if r.Substitute, err = reparseName(body[fixed:], le.Uint16(body), le.Uint16(body[2:])); err != nil {
		return Reparse{}, err
	}
	if r.Print, err = reparseName(body[fixed:], le.Uint16(body[4:]), le.Uint16(body[6:])); err != nil {
		return Reparse{}, err
	}
	return r, nil
}

func reparseName(names []byte, offset, length uint16) (string, error) {
	end := int(offset) + int(length)
	if length%2 != 0 || offset%2 != 0 || end > len(names) {
		return "", malformed("REPARSE_DATA_BUFFER", "a name of %d bytes at %d of %d", length, offset, len(names))
	}
	return wide(names[offset:end]), nil
}
