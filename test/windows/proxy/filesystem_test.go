//go:build wine && windows

package proxy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	filesystem "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem/v2alpha1"
)

// files calls the filesystem group.
type files struct {
	t          *testing.T
	connection *grpc.ClientConn
}

func (f files) call(method string, request proto.Message) error {
	f.t.Helper()
	return invoke(f.t, f.connection, "/v2alpha1.Filesystem/"+method, request, &emptypb.Empty{})
}

func (f files) mkdir(path string) error {
	return f.call("Mkdir", &filesystem.MkdirRequest{Path: path})
}

func (f files) rmdir(path string, force bool) error {
	return f.call("Rmdir", &filesystem.RmdirRequest{Path: path, Force: force})
}

func (f files) want(step string, err error, code codes.Code, words ...string) {
	f.t.Helper()
	if status.Code(err) != code {
		f.t.Errorf("%s: %v, want %v", step, err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(status.Convert(err).Message(), word) {
			f.t.Errorf("%s: the error %q does not say %q", step, err, word)
		}
	}
}

func onDisk(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// The filesystem group for real: over its pipe, on the files of wine.
func TestFilesystem_forReal(t *testing.T) {
	dir, flag := kubelet(t)
	launch(t, flag).ready(t)
	f := files{t, connect(t, `\\.\pipe\csi-proxy-filesystem-v2alpha1`)}
	deep := dir + `\plugins\driver\volume`

	f.want("make a directory and its parents", f.mkdir(deep), codes.OK)
	if !onDisk(t, deep) {
		t.Fatal("the directory was not made")
	}
	f.want("make it again", f.mkdir(deep), codes.OK)
	f.want("make it in capitals", f.mkdir(strings.ToUpper(deep)), codes.OK)
	if err := os.WriteFile(filepath.Join(deep, "file"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.want("make a directory where a file is", f.mkdir(deep+`\file`), codes.AlreadyExists)
	f.want("remove one that is not empty", f.rmdir(deep, false), codes.FailedPrecondition, "ERROR_DIR_NOT_EMPTY", "145")
	f.want("empty it", f.call("RmdirContents", &filesystem.RmdirContentsRequest{Path: deep}), codes.OK)
	if !onDisk(t, deep) || onDisk(t, deep+`\file`) {
		t.Error("emptying did not leave an empty directory")
	}
	f.want("remove it", f.rmdir(deep, false), codes.OK)
	f.want("remove it again", f.rmdir(deep, false), codes.NotFound)
	f.want("remove it again with force", f.rmdir(deep, true), codes.OK)
	if err := os.MkdirAll(filepath.Join(deep, "a", "b", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.want("remove a tree", f.rmdir(dir+`\plugins\driver`, true), codes.OK)
	if onDisk(t, dir+`\plugins\driver`) {
		t.Error("the tree still exists")
	}
	f.want("ask for a link where nothing is", f.call("IsSymlink", &filesystem.IsSymlinkRequest{Path: deep}), codes.NotFound)
}

// A path outside the roots, or a text that is not a path, is rejected by every RPC,
// and nothing happens on the disk.
func TestFilesystem_refusesWhatIsOutside(t *testing.T) {
	dir, flag := kubelet(t)
	launch(t, flag).ready(t)
	f := files{t, connect(t, `\\.\pipe\csi-proxy-filesystem-v2alpha1`)}
	evil := dir + "-evil"
	if err := os.Mkdir(evil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(evil); err != nil {
			t.Error(err)
		}
	})
	for _, path := range []string{
		evil, evil + `\x`, dir + `\..\x`, dir + `\x\..\..\y`, filepath.ToSlash(dir) + "/x", `\\server\share`,
		`\\?\` + dir + `\x`, `\\.\` + dir + `\x`,
		`\x`, `x`, `C:x`, dir + `\x:stream`, dir + `\x::$INDEX_ALLOCATION`, dir + `\x.`, dir + `\x `, dir + `\x.\y`, dir + `\PROGRA~1`,
		dir + `\CON`, dir + `\NUL.txt`, dir + `\COM1`, dir + `\CONIN$`, dir + `\a<b`, dir + "\\a\x01b", dir + "\\a\x00b", dir + `\a\\b`,
		dir + `\` + strings.Repeat("x", 300), "",
	} {
		for method, request := range map[string]proto.Message{
			"PathExists":    &filesystem.PathExistsRequest{Path: path},
			"Mkdir":         &filesystem.MkdirRequest{Path: path},
			"Rmdir":         &filesystem.RmdirRequest{Path: path, Force: true},
			"RmdirContents": &filesystem.RmdirContentsRequest{Path: path},
			"IsSymlink":     &filesystem.IsSymlinkRequest{Path: path},
			"CreateSymlink": &filesystem.CreateSymlinkRequest{SourcePath: dir, TargetPath: path},
		} {
			f.want(method+" "+path, f.call(method, request), codes.InvalidArgument)
		}
	}
	f.want("remove the root", f.rmdir(dir, true), codes.InvalidArgument)
	if !onDisk(t, evil) || !onDisk(t, dir) {
		t.Error("a directory outside is gone")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("there is something in the root: %v, %v", entries, err)
	}
}
