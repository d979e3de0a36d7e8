//go:build !linux

package mount

import (
	"fmt"
	"os"

	"github.com/moby/sys/mountinfo"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func unsupported() error {
	return fmt.Errorf("mounts: %w on this system", backend.ErrUnsupported)
}

// Available is for Linux.
func Available() error { return unsupported() }

// Point is for Linux.
type Point struct{ Path string }

// Resolve is for Linux.
func (r *Resolver) Resolve(string, string) (*Point, error) { return nil, unsupported() }

// Close does nothing.
func (p *Point) Close() error { return nil }

// Real is for Linux.
func (p *Point) Real() string { return p.Path }

// Open is for Linux.
func (p *Point) Open() (*Node, error) { return nil, unsupported() }

// MakeDir is for Linux.
func (p *Point) MakeDir() (bool, error) { return false, unsupported() }

// MakeFile is for Linux.
func (p *Point) MakeFile() (bool, error) { return false, unsupported() }

// Remove is for Linux.
func (p *Point) Remove() error { return unsupported() }

// Unmount is for Linux.
func (p *Point) Unmount() error { return unsupported() }

// Attach is for Linux.
func (p *Point) Attach(*Tree) error { return unsupported() }

// Node is for Linux.
type Node struct {
	MountRoot           bool
	MountID             uint64
	Dir, Block, Symlink bool
	Device              uint64
}

// Close does nothing.
func (n *Node) Close() error { return nil }

// FilesystemDevice is for Linux.
func (n *Node) FilesystemDevice() (uint64, error) { return 0, unsupported() }

// OpenDir is for Linux.
func (n *Node) OpenDir() (*os.File, error) { return nil, unsupported() }

// ReadOnly is for Linux.
func (n *Node) ReadOnly() (bool, error) { return false, unsupported() }

// Bind is for Linux.
func (n *Node) Bind(...string) (*Tree, error) { return nil, unsupported() }

// Tree is for Linux.
type Tree struct{}

// Filesystem is for Linux.
type Filesystem struct {
	Type   string
	Device string
	Number uint64
	// Defaults are options that the request did not ask for.
	Defaults []Option
	Flags    Flags
}

// Mount is for Linux.
func Mount(Filesystem) (*Tree, error) { return nil, unsupported() }

// BindDevice is for Linux.
func BindDevice(string, uint64) (*Tree, error) { return nil, unsupported() }

// OpenDir is for Linux.
func (t *Tree) OpenDir() (*os.File, error) { return nil, unsupported() }

// Close does nothing.
func (t *Tree) Close() error { return nil }

// FilesystemType is for Linux.
func (n *Node) FilesystemType() (string, error) { return "", unsupported() }

// File is for Linux.
func (n *Node) File() *os.File { return nil }

// State is for Linux.
type State struct {
	Errors         int
	ForcedReadOnly bool
}

// FilesystemState is for Linux.
func (n *Node) FilesystemState() (State, error) { return State{}, unsupported() }

// FilesystemStateIn returns an error: this system has no mounts.
func (n *Node) FilesystemStateIn([]*mountinfo.Info) (State, error) { return State{}, unsupported() }
