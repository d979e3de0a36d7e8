// Package policy decides who may reach the named pipes of csi-proxy.
//
// A pod that has such a pipe can do privileged storage operations on its node.
// Only pods that say so openly and are approved may have one; and because a pipe
// has many spellings, every path that could be one of them and is not written the
// canonical way is refused to everybody. The rule is about text alone: it knows
// neither whether the pod will run on Windows nor whether the pipe exists.
//
// The patterns are RE2 and are used as they stand in the shipped
// ValidatingAdmissionPolicy too, so that both decide alike.
package policy

import "regexp"

// Verdict is what a path of a volume may be.
type Verdict int

// The classes.
const (
	// Ordinary paths, and pipes of others, are not subject to this rule.
	Ordinary Verdict = iota
	// ProxyPipe is a pipe of csi-proxy, canonically written: for approved pods.
	ProxyPipe
	// Forbidden is another spelling of a pipe, or a device path in general: for
	// no pod.
	Forbidden
)

// The patterns. Separators may be \ or /, which are the same in Win32 paths
// (learn.microsoft.com, "File path formats on Windows systems"). Letters are
// without case, since names of objects are.
const (
	// DevicePattern finds what does not begin as a path on a drive: UNC and device
	// paths (two separators), \??\, the object namespace, and URLs of pipes. Blanks
	// in front are ignored, as some programs do.
	DevicePattern = `(?i)^[\s\x{200b}\x{feff}]*([\\/]\s*[\\/]|[\\/]\?\?|[\\/](device|global\?\?|dosdevices|objectmanager)([\\/]|$)|npipe:)`
	// PipePattern is the one way to write a pipe: it is also the only prefix that
	// container runtimes take for one (hcsshim, containerd). The last character is
	// no dot: Win32 strips it.
	PipePattern = `^\\\\\.\\pipe\\[A-Za-z0-9._-]*[A-Za-z0-9_-]$`
	// ProxyPattern is a pipe of csi-proxy among those that PipePattern finds: of
	// the KEP's API (csi-proxy-v1) or of a group (csi-proxy-disk-v1).
	ProxyPattern = `(?i)^\\\\\.\\pipe\\csi-proxy`
	// SharePattern finds \\server\share\…: a server is no '.' and no '?', which
	// begin device paths.
	SharePattern = `^[\\/]{2}[A-Za-z0-9_\[\]:%$@-][^\\/]*([\\/]|$)`
	// SharedPipePattern finds what is not a plain directory in such a path: the
	// shares through which pipes are reached (by SMB, also on the machine itself),
	// and dot components, which could lead to them.
	SharedPipePattern = `(?i)^[\\/]{2}[^\\/]+[\\/]+(pipe|ipc\$)[\s.]*([\\/]|$)|[\\/]\s*\.{1,2}[\s.]*([\\/]|$)`
)

// rules are the compiled patterns.
type rules struct{ device, pipe, proxy, share, sharedPipe *regexp.Regexp }

func compile() rules {
	return rules{
		device: regexp.MustCompile(DevicePattern), pipe: regexp.MustCompile(PipePattern), proxy: regexp.MustCompile(ProxyPattern),
		share: regexp.MustCompile(SharePattern), sharedPipe: regexp.MustCompile(SharedPipePattern),
	}
}

func (r rules) classify(path string) Verdict {
	switch {
	case !r.device.MatchString(path):
		return Ordinary
	case r.pipe.MatchString(path) && r.proxy.MatchString(path):
		return ProxyPipe
	case r.pipe.MatchString(path):
		return Ordinary
	case r.share.MatchString(path) && !r.sharedPipe.MatchString(path):
		return Ordinary
	}
	return Forbidden
}
