package verify

import (
	"context"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// paths are the checks of how Win32 reads a path.
func (s *Session) paths() []verify.Check {
	reads := func(id, statement string, form func(dir string) string, numbers ...win32.Errno) verify.Check {
		return check(id, statement, naming, "a path that is refused leads elsewhere, or one that is allowed is not found",
			s.in(func(d win32.Directory) verify.Result {
				return with(d, "Some Name", func() verify.Result {
					_, err := s.Machine.Files.Attributes(form(s.Dir + `\Some Name`))
					if len(numbers) == 0 {
						return succeeded(err)
					}
					return refused(err, numbers...)
				})
			}))
	}
	return []verify.Check{
		reads("win-path-case", "a path names the same directory in any case", strings.ToUpper),
		reads("win-path-slashes", "slashes are backslashes", func(p string) string { return strings.ReplaceAll(p, `\`, `/`) }),
		reads("win-path-dots", `the components . and .. and doubled backslashes are resolved in the text`,
			func(p string) string { return p + `\.\\x\..` }),
		reads("win-path-trailing", "dots and blanks at the end of a component are dropped", func(p string) string { return p + `. . ` }),
		reads("win-path-literal", `after \\?\ nothing is: a dot at the end belongs to the name`,
			func(p string) string { return `\\?\` + p + `.` }, win32.ErrorFileNotFound),
		reads("win-path-literal-dot", `after \\?\ a component . is an invalid name`,
			func(p string) string { return `\\?\` + p + `\.` }, win32.ErrorInvalidName),
		reads("win-path-stream", "a colon in a component is no part of a directory's name",
			func(p string) string { return p + `:stream` }, win32.ErrorInvalidName, win32.ErrorFileNotFound),
		reads("win-path-missing", "a missing component on the way is ERROR_PATH_NOT_FOUND",
			func(p string) string { return p + `\missing\x` }, win32.ErrorPathNotFound),
	}
}

// directories are the checks of operations in an open directory.
func (s *Session) directories() []verify.Check {
	return []verify.Check{
		check("win-dir-one-component", "in an open directory a name with a separator, a wildcard or a colon is ERROR_INVALID_NAME",
			"NtCreateFile, RootDirectory", "a name of a request leads out of the directory", s.in(func(d win32.Directory) verify.Result {
				for _, name := range []string{`a\b`, "a/b", "a:b", "a*", "a?", "a\x00"} {
					if r := refused(d.Mkdir(name), win32.ErrorInvalidName); r.Outcome != verify.Holds {
						return about(name, r)
					}
				}
				return verify.Held("refused")
			})),
		check("win-dir-exact-names", "in an open directory names with a dot or blank at their end, and names of devices, are ordinary names",
			"NtCreateFile", "a directory that a container made cannot be removed", s.in(func(d win32.Directory) verify.Result {
				for _, name := range []string{"CON", "nul.txt", "x.", "x ", "a..b"} {
					if r := with(d, name, func() verify.Result { return verify.Held("") }); r.Outcome != verify.Holds {
						return r
					}
				}
				return verify.Held("made and removed")
			})),
		check("win-dir-upper-case", "names that differ in case only are equal, and the Kelvin sign is not the letter k",
			undocumented, "two names of one directory are taken for two, or the other way round", s.in(func(d win32.Directory) verify.Result {
				return with(d, "kubelet", func() verify.Result {
					return all(about("KUBELET", refused(d.Mkdir("KUBELET"), win32.ErrorAlreadyExists)),
						with(d, "\u212Aubelet", func() verify.Result { return verify.Held("two directories") }))
				})
			})),
		check("win-dir-not-empty", "a directory that is not empty is not removed: ERROR_DIR_NOT_EMPTY",
			"RemoveDirectoryW", "data of a volume is deleted", s.in(func(d win32.Directory) verify.Result {
				return with(d, "full", func() verify.Result {
					inner, err := d.Open("full")
					if err != nil {
						return verify.Differed("%v", err)
					}
					err = inner.Mkdir("x")
					if closed := inner.Close(); err != nil || closed != nil {
						return verify.Differed("%v, %v", err, closed)
					}
					result := refused(d.Remove("full"), win32.ErrorDirNotEmpty)
					if inner, err = d.Open("full"); err != nil {
						return verify.Differed("%v after %s", err, result.Seen)
					}
					err = inner.Remove("x")
					if closed := inner.Close(); err != nil || closed != nil {
						return verify.Differed("%v, %v", err, closed)
					}
					return result
				})
			})),
		check("win-dir-held", "an open directory cannot be removed or renamed: ERROR_SHARING_VIOLATION or ERROR_ACCESS_DENIED",
			"CreateFileW, dwShareMode", "a directory is replaced while an operation works in it", s.in(func(d win32.Directory) verify.Result {
				return with(d, "held", func() verify.Result {
					inner, err := d.Open("held")
					if err != nil {
						return verify.Differed("%v", err)
					}
					result := refused(d.Remove("held"), win32.ErrorSharingViolation, win32.ErrorAccessDenied)
					if err := inner.Close(); err != nil {
						return verify.Differed("close: %v", err)
					}
					if _, err := d.Stat("held"); err != nil {
						_ = d.Mkdir("held") // it was removed: with removes it again
					}
					return result
				})
			})),
		check("win-dir-final-path", "GetFinalPathNameByHandleW returns the directory's own path",
			"GetFinalPathNameByHandleW", "every path is refused as if it led through a link", s.in(func(d win32.Directory) verify.Result {
				path, err := d.Path()
				if err != nil {
					return verify.Differed("%v", err)
				}
				if !strings.EqualFold(path, s.Dir) {
					return verify.Differed("%s for %s", path, s.Dir)
				}
				return verify.Held("equal")
			})),
	}
}

// links are the checks of symbolic links to directories.
func (s *Session) links() []verify.Check {
	linked := func(f func(win32.Directory) verify.Result) func(context.Context) verify.Result {
		return s.in(func(d win32.Directory) verify.Result {
			return with(d, "target", func() verify.Result {
				if err := d.Symlink("link", s.Dir+`\target`); err != nil {
					return verify.Differed("CreateSymbolicLinkW: %v", err)
				}
				result := f(d)
				if err := d.Remove("link"); err != nil && result.Outcome == verify.Holds {
					return verify.Differed("remove the link: %v", err)
				}
				return result
			})
		})
	}
	return []verify.Check{
		check("win-link-is-reparse", "CreateSymbolicLinkW with the directory flag makes a reparse point with IO_REPARSE_TAG_SYMLINK in the form of a directory",
			"CreateSymbolicLinkW", "the kubelet's mount of a pod's volume is not recognised", linked(func(d win32.Directory) verify.Result {
				info, err := d.Stat("link")
				if err != nil {
					return verify.Differed("%v", err)
				}
				data, err := d.Reparse("link")
				if err != nil {
					return verify.Differed("its data: %v", err)
				}
				reparse, err := win32.DecodeReparse(data)
				if err != nil || !info.IsDir() || !info.IsReparse() || reparse.Tag != win32.ReparseTagSymlink {
					return verify.Differed("attributes %#x, tag %#x, %v", info.Attributes, reparse.Tag, err)
				}
				return verify.Held("attributes %#x, tag %#x", info.Attributes, reparse.Tag)
			})),
		check("win-link-not-followed", "opening a link in an open directory is ERROR_STOPPED_ON_SYMLINK",
			undocumented, "an operation leaves the kubelet's directory through a planted link", linked(func(d win32.Directory) verify.Result {
				inner, err := d.Open("link")
				if err == nil {
					_ = inner.Close()
				}
				return refused(err, win32.ErrorStoppedOnSymlink)
			})),
		check("win-link-removed-alone", "removing a link removes the link and not its target",
			"RemoveDirectoryW", "the data of a volume is deleted with a pod", s.in(func(d win32.Directory) verify.Result {
				return with(d, "target", func() verify.Result {
					if err := d.Symlink("link", s.Dir+`\target`); err != nil {
						return verify.Differed("CreateSymbolicLinkW: %v", err)
					}
					if err := d.Remove("link"); err != nil {
						return verify.Differed("%v", err)
					}
					_, err := d.Stat("target")
					return succeeded(err)
				})
			})),
		check("win-link-to-nothing", "a link to a target that does not exist can be made",
			"CreateSymbolicLinkW", "a link to nothing is a link to a file", s.in(func(d win32.Directory) verify.Result {
				if err := d.Symlink("dangling", s.Dir+`\nothing`); err != nil {
					return verify.Differed("%v", err)
				}
				return succeeded(d.Remove("dangling"))
			})),
		check("win-reparse-of-directory", "FSCTL_GET_REPARSE_POINT of a plain directory is ERROR_NOT_A_REPARSE_POINT",
			"FSCTL_GET_REPARSE_POINT", "an ordinary directory is an error", s.in(func(d win32.Directory) verify.Result {
				return with(d, "plain", func() verify.Result {
					_, err := d.Reparse("plain")
					return refused(err, win32.ErrorNotAReparsePoint)
				})
			})),
	}
}
