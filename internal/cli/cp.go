package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/tartree"
)

const copyHelp = `Copy files and directories between this machine and a container that runs.

One of the two is POD:PATH or NAMESPACE/POD:PATH. A relative path in a container begins at
its working directory. As with cp -r, what is copied to a directory that exists becomes an
entry of it; a source that ends with /. is the content of a directory. A local path with a
colon begins with ./ or /.

With - instead of a local path, the copy is a tar stream on standard input or output.

A copy has the rights of the container's user in the container, and yours on this machine.
Permissions and times are kept, owners and the bits for setuid, setgid and sticky are not.
Links of a container are not made on this machine: a warning names each of them. What did not
exist before appears when it is complete, or not at all.`

// copyConfig are the flags of cp.
type copyConfig struct {
	hostClient
	container  string
	noPreserve bool
}

func newCopyCommand() *cobra.Command {
	c := copyConfig{}
	command := &cobra.Command{
		Use:   "cp POD:PATH PATH | cp PATH POD:PATH",
		Short: "Copy files between this machine and a pod's container",
		Long:  copyHelp,
		Example: `  holdfast cp web:/srv/data/dump.sql .
  holdfast cp ./conf web:/etc/app -c main
  holdfast cp shop/web:/srv/data/. backup
  holdfast cp web:/srv/data - | gzip > data.tar.gz`,
		Args: arguments(two("what to copy and where to: cp POD:PATH PATH, or cp PATH POD:PATH")),
		RunE: func(command *cobra.Command, given []string) error { return c.run(command, given[0], given[1]) },
		ValidArgsFunction: func(command *cobra.Command, given []string, word string) ([]string, cobra.ShellCompDirective) {
			return c.complete(command, given, word)
		},
	}
	flags := command.Flags()
	c.bind(flags)
	c.bindNamespace(flags)
	flags.StringVarP(&c.container, "container", "c", "", "`NAME` of the pod's container, if it has several")
	flags.BoolVar(&c.noPreserve, "no-preserve", false, "give copies the default permissions, and the time of the copy")
	c.completeFlags(command)
	return command
}

// two is the check of commands with two arguments.
func two(missing string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		switch {
		case len(given) < 2:
			return usageErrorf("say %s", missing)
		case len(given) > 2:
			return usageErrorf("two arguments expected: unexpected %q", given[2])
		}
		return nil
	}
}

// complete offers pods, and the shell offers files.
func (c *copyConfig) complete(command *cobra.Command, given []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.ContainsAny(word, ":/.") || len(given) == 1 && strings.Contains(given[0], ":") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, name := range c.names(command.Context(), "pods", "", nil) {
		names = append(names, name+":")
	}
	return names, cobra.ShellCompDirectiveNoSpace
}

// copyPlace is one side of a copy: a path in a pod, or, without a pod, on this machine.
type copyPlace struct{ namespace, pod, path string }

func (c *copyConfig) place(word string) (copyPlace, error) {
	pod, path, both := strings.Cut(word, ":")
	if !both || strings.HasPrefix(word, "/") || strings.HasPrefix(word, ".") {
		if word == "" {
			return copyPlace{}, usageErrorf("a path is empty")
		}
		return copyPlace{path: word}, nil
	}
	p := copyPlace{namespace: c.namespace, pod: pod, path: path}
	if namespace, name, both := strings.Cut(pod, "/"); both {
		p.namespace, p.pod = namespace, name
		if new(namespaceValue).Set(namespace) != nil {
			return p, usageErrorf("%q: %q is not the name of a namespace; a local path begins with ./ or /", word, namespace)
		}
	}
	if checkNames([]string{p.pod}) != nil {
		return p, usageErrorf("%q: %q is not a pod's name; a local path begins with ./ or /", word, p.pod)
	}
	if path == "" {
		return p, usageErrorf("%q has no path", word)
	}
	return p, nil
}

func (c *copyConfig) run(command *cobra.Command, source, target string) error {
	from, err := c.place(source)
	if err != nil {
		return err
	}
	to, err := c.place(target)
	if err != nil {
		return err
	}
	switch {
	case from.pod == "" && to.pod == "":
		return usageErrorf("neither %q nor %q is in a pod: one of the two is POD:PATH", source, target)
	case from.pod != "" && to.pod != "":
		return usageErrorf("%q and %q are both in a pod: copy to this machine first", source, target)
	}
	client := c.dial()
	defer client.Close()
	display := newCopyDisplay(command.ErrOrStderr())
	defer display.close()
	t := transfer{command: command, client: client, display: display, preserve: !c.noPreserve}
	if from.pod != "" {
		t.request = from.request(c)
		return t.download(to.path)
	}
	t.request = to.request(c)
	t.request.Upload, t.request.NoPreserve = true, c.noPreserve
	return t.upload(from.path)
}

func (p copyPlace) request(c *copyConfig) api.CopyRequest {
	return api.CopyRequest{Namespace: p.namespace, Pod: p.pod, Container: c.container, Path: p.path, Name: tartree.Whole}
}

// topOf is the name that a source has in its stream and at its target; "." for the content
// of a directory.
func topOf(source string) string {
	if source == "." || strings.HasSuffix(source, "/.") {
		return tartree.Whole
	}
	name := path.Base(path.Clean(source))
	if name == ".." || name == "/" {
		return tartree.Whole
	}
	return name
}

// transfer is one copy.
type transfer struct {
	command  *cobra.Command
	client   *api.Client
	display  *copyDisplay
	request  api.CopyRequest
	preserve bool
}

func (t transfer) warn(text string) { t.display.say("Warning: " + printable(text)) }

// warnings shows each line that the host writes to standard error.
func (t transfer) warnings() io.Writer { return &lineSplitter{each: t.warn} }

// standard is the path that means standard input or output.
const standard = "-"

// download copies from the container. The stream is the container's: tartree checks it.
func (t transfer) download(target string) error {
	t.request.Name = topOf(t.request.Path)
	ctx := t.command.Context()
	if target == standard {
		if out, ok := t.command.OutOrStdout().(*os.File); ok && term.IsTerminal(int(out.Fd())) {
			return usageErrorf("-: standard output is a terminal; redirect it")
		}
		return interruptedCopy(ctx, t.client.Copy(ctx, t.request, api.ExecStreams{Stdout: t.command.OutOrStdout(), Stderr: t.warnings()}), tartree.Done{})
	}
	root, name, err := localTarget(target, t.request.Name)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read, write := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		err := t.client.Copy(ctx, t.request, api.ExecStreams{Stdout: write, Stderr: t.warnings()})
		_ = write.CloseWithError(err)
		copied <- err
	}()
	done, err := tartree.Unpack{
		Name: t.request.Name, As: name, Preserve: t.preserve, Warn: t.warn, Progress: t.display.add,
	}.Run(ctx, &finalReader{read, copied}, root)
	cancel()
	_ = read.CloseWithError(io.ErrClosedPipe)
	return interruptedCopy(t.command.Context(), err, done)
}

// finalReader returns the error of the copy at the end of the stream: without one from the
// host, the stream is complete.
type finalReader struct {
	from   io.Reader
	copied <-chan error
}

func (f *finalReader) Read(into []byte) (int, error) {
	n, err := f.from.Read(into)
	if errors.Is(err, io.EOF) {
		if failed := <-f.copied; failed != nil {
			err = failed
		}
	}
	return n, err
}

// localTarget opens the directory to write to, and names the entry of it that is written.
func localTarget(target, name string) (*os.Root, string, error) {
	info, err := os.Stat(target)
	if err == nil && info.IsDir() {
		root, err := os.OpenRoot(target)
		return root, name, err
	}
	if clean := filepath.Base(target); strings.HasSuffix(target, "/") || clean == "." || clean == ".." {
		return nil, "", fmt.Errorf("%q is not a directory", target)
	}
	root, err := os.OpenRoot(filepath.Dir(target))
	return root, filepath.Base(target), err
}

// upload copies to the container.
func (t transfer) upload(source string) error {
	ctx := t.command.Context()
	if source == standard {
		return interruptedCopy(ctx, t.client.Copy(ctx, t.request, api.ExecStreams{Stdin: t.command.InOrStdin(), Stdout: io.Discard, Stderr: t.warnings()}), tartree.Done{})
	}
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err == nil {
		err = tartree.CheckRegular(source, info.Mode())
	}
	if err != nil {
		return err
	}
	t.request.Name = topOf(filepath.ToSlash(source))
	if !info.IsDir() && t.request.Name == tartree.Whole {
		return fmt.Errorf("%q is not a directory", source)
	}
	t.display.total.Store(totalOf(source))
	pack := tartree.Pack{Name: t.request.Name, Warn: t.warn, Progress: t.display.add}
	read, write := io.Pipe()
	packed := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		err := packLocal(ctx, pack, write, file, info.IsDir(), source)
		_ = write.CloseWithError(err)
		packed <- err
	}()
	err = t.client.Copy(ctx, t.request, api.ExecStreams{Stdin: read, Stdout: io.Discard, Stderr: t.warnings()})
	_ = read.Close()
	cancel()
	if failed := <-packed; failed != nil && !errors.Is(failed, io.ErrClosedPipe) && !errors.Is(failed, context.Canceled) {
		err = ofBoth(failed, err)
	}
	return interruptedCopy(t.command.Context(), err, tartree.Done{})
}

func packLocal(ctx context.Context, pack tartree.Pack, out io.Writer, file *os.File, directory bool, source string) error {
	if !directory {
		return pack.File(ctx, out, file)
	}
	root, err := os.OpenRoot(source)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return pack.Tree(ctx, out, root)
}

// totalOf is the size of the files to copy, for the display: what cannot be read is an error
// of the copy.
func totalOf(source string) (total int64) {
	_ = filepath.WalkDir(source, func(_ string, entry os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}

// ofBoth joins the error of reading the source with the error of writing it in the container.
func ofBoth(here, there error) error {
	if there == nil {
		return here
	}
	return fmt.Errorf("%w; in the container: %w", here, there)
}

// interruptedCopy adds to the error of a copy what was kept.
func interruptedCopy(ctx context.Context, err error, done tartree.Done) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted; what was not complete is removed, and files that were complete in a directory that existed stay")
	case done.Kept:
		return fmt.Errorf("%w; %d files were complete before that, and stay", err, done.Files)
	}
	return err
}

// lineSplitter calls each with every line that is written.
type lineSplitter struct {
	each func(string)
	rest string
}

// maximumWarning bounds a line that has no end.
const maximumWarning = 16 << 10

func (l *lineSplitter) Write(data []byte) (int, error) {
	l.rest += string(data)
	for {
		line, rest, ended := strings.Cut(l.rest, "\n")
		if !ended && len(line) < maximumWarning {
			return len(data), nil
		}
		l.each(line)
		l.rest = rest
	}
}
