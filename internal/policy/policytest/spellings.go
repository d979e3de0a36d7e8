// Package policytest has the spellings of pipes that the rule must know, for the
// tests of all its forms.
package policytest

import "github.com/holdfast-csi/holdfast/internal/policy"

// Spelling is a path of a volume, and the class that the rule must give it.
type Spelling struct {
	Name string // how it differs from the usual spelling
	Path string
	Want policy.Verdict
}

// Spellings of the proxy's pipe, of its parents and of its neighbours.
//
//nolint:funlen // a table
func Spellings() []Spelling {
	const ordinary, proxy, forbidden = policy.Ordinary, policy.ProxyPipe, policy.Forbidden
	return []Spelling{
		{"PIPE-canonical", `\\.\pipe\csi-proxy-v1`, proxy},
		{"PIPE-canonical of an older version", `\\.\pipe\csi-proxy-v1beta1`, proxy},
		{"PIPE-canonical of a version to come", `\\.\pipe\csi-proxy-v2alpha1`, proxy},
		{"PIPE-group", `\\.\pipe\csi-proxy-disk-v1`, proxy},
		{"PIPE-group filesystem", `\\.\pipe\csi-proxy-filesystem-v1beta2`, proxy},
		{"PIPE-prefix alone", `\\.\pipe\csi-proxy`, proxy},
		{"PIPE-case of the name", `\\.\pipe\CSI-Proxy-V1`, proxy},
		{"PIPE-case of the prefix", `\\.\PIPE\csi-proxy-v1`, forbidden},
		{"PIPE-case of everything", `\\.\PIPE\CSI-Proxy-V1`, forbidden},
		{"PIPE-slashes", `//./pipe/csi-proxy-v1`, forbidden},
		{"PIPE-mixed slashes", `\\./pipe\csi-proxy-v1`, forbidden},
		{"PIPE-mixed slashes at the front", `/\.\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-doubled", `\\.\\pipe\\csi-proxy-v1`, forbidden},
		{"PIPE-doubled everywhere", `\\\\.\\pipe\\csi-proxy-v1`, forbidden},
		{"PIPE-three in front", `\\\.\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-dot component", `\\.\pipe\.\csi-proxy-v1`, forbidden},
		{"PIPE-dots", `\\.\x\..\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-dots within", `\\.\pipe\x\..\csi-proxy-v1`, forbidden},
		{"PIPE-trailing dot", `\\.\pipe\csi-proxy-v1.`, forbidden},
		{"PIPE-trailing blank", `\\.\pipe\csi-proxy-v1 `, forbidden},
		{"PIPE-trailing tab", "\\\\.\\pipe\\csi-proxy-v1\t", forbidden},
		{"PIPE-trailing separator", `\\.\pipe\csi-proxy-v1\`, forbidden},
		{"PIPE-leading blank", ` \\.\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-leading newline", "\n\\\\.\\pipe\\csi-proxy-v1", forbidden},
		{"PIPE-trailing newline", "\\\\.\\pipe\\csi-proxy-v1\n", forbidden},
		{"PIPE-trailing newline of another", "\\\\.\\pipe\\docker_engine\n", forbidden},
		{"PIPE-letter of another alphabet", `\\.\pipe\` + "\u0441si-proxy-v1", forbidden},
		{"PIPE-letter that folds to s", `\\.\pipe\c` + "\u017f" + `i-proxy-v1`, forbidden},
		{"PIPE-win32 file", `\\?\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-nt", `\??\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-nt slashes", `/??/pipe/csi-proxy-v1`, forbidden},
		{"PIPE-globalroot", `\\.\GLOBALROOT\Device\NamedPipe\csi-proxy-v1`, forbidden},
		{"PIPE-globalroot of a file", `\\?\GLOBALROOT\Device\NamedPipe\csi-proxy-v1`, forbidden},
		{"PIPE-device", `\Device\NamedPipe\csi-proxy-v1`, forbidden},
		{"PIPE-device slashes", `/device/namedpipe/csi-proxy-v1`, forbidden},
		{"PIPE-dosdevices", `\DosDevices\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-global names", `\GLOBAL??\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-global", `\\.\Global\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-smb localhost", `\\localhost\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-smb address", `\\127.0.0.1\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-smb name", `\\NODENAME\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-smb case", `\\NODENAME\PiPe\csi-proxy-v1`, forbidden},
		{"PIPE-smb slashes", `//nodename/pipe/csi-proxy-v1`, forbidden},
		{"PIPE-smb ipc", `\\nodename\IPC$\csi-proxy-v1`, forbidden},
		{"PIPE-smb doubled", `\\nodename\\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-smb dots", `\\nodename\share\..\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-smb blank", `\\nodename\pipe \csi-proxy-v1`, forbidden},
		{"PIPE-smb v6", `\\[::1]\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-smb v6 name", `\\0--1.ipv6-literal.net\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-unc", `\\.\UNC\localhost\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-unc file", `\\?\UNC\localhost\pipe\csi-proxy-v1`, forbidden},
		{"PIPE-parent", `\\.\pipe\`, forbidden},
		{"PIPE-parent without separator", `\\.\pipe`, forbidden},
		{"PIPE-all devices", `\\.\`, forbidden},
		{"PIPE-all files", `\\?\`, forbidden},
		{"PIPE-two separators", `\\`, forbidden},
		{"PIPE-url", `npipe:////./pipe/csi-proxy-v1`, forbidden},
		{"PIPE-url case", `NPIPE:////./pipe/csi-proxy-v1`, forbidden},
		{"a disk", `\\.\PhysicalDrive0`, forbidden},
		{"a volume", `\\?\Volume{0b0ddd2d-3b5b-4b2e-a6d7-4c1d2b3a4f5e}\`, forbidden},
		{"another's pipe", `\\.\pipe\docker_engine`, ordinary},
		{"another's pipe with a dot", `\\.\pipe\containerd-containerd.v1`, ordinary},
		{"a pipe whose name has ours in it", `\\.\pipe\my-csi-proxy-v1`, ordinary},
		{"a directory on a drive", `C:\var\lib\kubelet\plugins`, ordinary},
		{"a directory named pipe", `C:\pipe\csi-proxy-v1`, ordinary},
		{"a directory without a drive", `\var\lib\kubelet`, ordinary},
		{"a directory of Linux", `/var/lib/kubelet/plugins`, ordinary},
		{"devices of Linux", `/dev`, ordinary},
		{"a share", `\\server\share\data`, ordinary},
		{"a share with slashes", `//server.example/share/data`, ordinary},
		{"a directory named pipe in a share", `\\server\share\pipe`, ordinary},
	}
}
