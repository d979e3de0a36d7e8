package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// finder searches for the newest version that the node's proxy serves.
type finder struct {
	// desired are the acceptable versions, and older the others that this client knows,
	// the newest first.
	desired, older []string
	dial           func(ctx context.Context, pipe string) (net.Conn, error)
	pipes          func() ([]string, error)
}

func newFinder(o Options) (finder, error) {
	known := knownVersions()
	oldest := o.Oldest
	if oldest == "" {
		oldest = known[len(known)-1]
	}
	if err := api.CheckVersion(oldest); err != nil {
		return finder{}, err
	}
	if api.CompareVersions(oldest, known[0]) > 0 {
		return finder{}, fmt.Errorf("%w: this client knows %s and older, not %s", ErrVersion, known[0], oldest)
	}
	f := finder{dial: o.Dialer, pipes: o.Pipes}
	for _, v := range known {
		if api.CompareVersions(v, oldest) >= 0 {
			f.desired = append(f.desired, v)
		} else {
			f.older = append(f.older, v)
		}
	}
	if f.dial == nil {
		f.dial = func(ctx context.Context, pipe string) (net.Conn, error) { return dialPipe(ctx, pipe, o.Server) }
		if f.pipes == nil {
			f.pipes = listPipes
		}
	}
	return f, nil
}

// newer are the versions after the known ones, for the error message if pipes cannot be
// listed.
func newer() []string { return []string{"v2", "v2beta1", "v2alpha1"} }

func pipeOf(v string) string { return api.PipePrefix + v }

// find returns a session with the newest desired version that is served. It skips a pipe
// of another program. Any other failure is returned: the proxy exists, and a later call
// may succeed.
func (f finder) find(ctx context.Context) (*session, error) {
	var strangers []error
	for _, v := range f.desired {
		s, err := f.open(v)
		if err != nil {
			return nil, err
		}
		err = s.verify(ctx)
		if err == nil {
			return s, nil
		}
		s.retire()
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, ErrServer):
			strangers = append(strangers, err)
		default:
			return nil, err
		}
	}
	if len(strangers) > 0 {
		return nil, errors.Join(strangers...)
	}
	return nil, f.missing(ctx)
}

// missing returns an error with the versions that are served in place of the desired ones.
func (f finder) missing(ctx context.Context) error {
	found, groups := f.served(ctx)
	desired := strings.Join(f.desired, ", ")
	switch {
	case len(found) == 0 && groups == 0:
		return fmt.Errorf("%w: no pipe %s* serves a desired version (%s); start the csi-proxy service on the node, "+
			"and mount its pipe into the container", ErrNoProxy, api.PipePrefix, desired)
	case len(found) == 0:
		return fmt.Errorf("%w: needs %s; found no version of this API, but %d pipes of the group API, which an older "+
			"csi-proxy serves; upgrade csi-proxy.exe on all nodes before the plugin", ErrVersion, desired, groups)
	}
	advice := "upgrade csi-proxy.exe on all nodes before the plugin"
	if api.CompareVersions(found[len(found)-1], f.desired[0]) > 0 {
		advice = "upgrade the plugin, or install a csi-proxy.exe that still serves a required version next to the installed one"
	}
	return fmt.Errorf("%w: needs %s; found %s; %s", ErrVersion, desired, strings.Join(found, ", "), advice)
}

// served returns the versions of the API that have a pipe, the newest first, and the
// number of pipes of the group API. It does not check which process serves a pipe.
func (f finder) served(ctx context.Context) (found []string, groups int) {
	candidates := f.older
	var names []string
	if f.pipes != nil {
		var err error
		if names, err = f.pipes(); err != nil {
			candidates = slices.Concat(newer(), candidates)
		}
	}
	for _, v := range candidates {
		if f.exists(ctx, pipeOf(v)) {
			found = append(found, v)
		}
	}
	prefix := api.PipePrefix[strings.LastIndexByte(api.PipePrefix, '\\')+1:]
	for _, name := range names {
		rest, ok := strings.CutPrefix(strings.ToLower(name[strings.LastIndexByte(name, '\\')+1:]), prefix)
		switch {
		case !ok:
		case api.CheckVersion(rest) == nil:
			found = append(found, rest)
		case api.CheckVersion(rest[strings.LastIndexByte(rest, '-')+1:]) == nil:
			groups++
		}
	}
	slices.SortFunc(found, func(a, b string) int { return api.CompareVersions(b, a) })
	return slices.Compact(found), groups
}

// exists connects to a pipe and closes the connection.
func (f finder) exists(ctx context.Context, pipe string) bool {
	limited, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := f.dial(limited, pipe)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && limited.Err() == nil
	}
	_ = conn.Close()
	return true
}
