// Package policy decides which pods may reach the named pipes of csi-proxy.
//
// A pod with such a pipe can do privileged storage operations on its node. Only approved
// pods that declare the pipe openly may have one. A pipe has many spellings, so every path
// that could be one in another than the canonical spelling is rejected for all pods. The
// rule is about text alone: it knows neither whether the pod will run on Windows nor
// whether the pipe exists.
//
// The patterns are RE2. The shipped ValidatingAdmissionPolicy has the same ones, so that
// both decide alike.
package policy

import "regexp"

// Verdict is the class of a volume's path.
type Verdict int

// The classes.
const (
	// Ordinary paths, and pipes of other programs, are not subject to this rule.
	Ordinary Verdict = iota
	// ProxyPipe is a pipe of csi-proxy in its canonical spelling: for approved pods.
	ProxyPipe
	// Forbidden is another spelling of a pipe, or any device path: for no pod.
	Forbidden
)

// The patterns. Separators may be \ or /, which are the same in Win32 paths
// (learn.microsoft.com, "File path formats on Windows systems"). Letters are
// without case, since names of objects are.
const (
	// DevicePattern finds paths that do not begin with a drive: UNC and device paths (two
	// separators), \??\, the object namespace, and URLs of pipes. It ignores blanks in
	// front, as some programs do.
	DevicePattern = `(?i)^[\s\x{200b}\x{feff}]*([\\/]\s*[\\/]|[\\/]\?\?|[\\/](device|global\?\?|dosdevices|objectmanager)([\\/]|$)|npipe:)`
	// PipePattern is the canonical spelling of a pipe. Its prefix is also the only one
	// that container runtimes take for a pipe (hcsshim, containerd). The last character
	// is not a dot, which Win32 would strip.
	PipePattern = `^\\\\\.\\pipe\\[A-Za-z0-9._-]*[A-Za-z0-9_-]$`
	// ProxyPattern is a pipe of csi-proxy among those that PipePattern finds: of
	// the KEP's API (csi-proxy-v1) or of a group (csi-proxy-disk-v1).
	ProxyPattern = `(?i)^\\\\\.\\pipe\\csi-proxy`
	// SharePattern finds \\server\share\…: the server is neither '.' nor '?', the first
	// characters of device paths.
	SharePattern = `^[\\/]{2}[A-Za-z0-9_\[\]:%$@-][^\\/]*([\\/]|$)`
	// SharedPipePattern finds the parts of such a path that are not plain directories: the
	// shares through which pipes are reached (by SMB, also on the machine itself), and
	// dot components, which could lead to them.
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
