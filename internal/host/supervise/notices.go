package supervise

import "github.com/fsnotify/fsnotify"

// notices are the kernel's of the changes of one directory. They may be not to
// be had, when the limits of fs.inotify are reached: the directory is to be
// looked at every so often then.
type notices struct {
	open    func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher // nil when there is none
}

// of asks for the notices of a directory, again if need be. The error is why
// there are none.
func (n *notices) of(directory string) (err error) {
	if n.watcher == nil {
		if n.watcher, err = n.open(); err != nil {
			n.watcher = nil
			return err
		}
	}
	return n.watcher.Add(directory)
}

// channels are closed never, and nil where there are no notices. That some were
// lost is one, too.
func (n *notices) channels() (changes <-chan fsnotify.Event, lost <-chan error) {
	if n.watcher == nil {
		return nil, nil
	}
	return n.watcher.Events, n.watcher.Errors
}

func (n *notices) close() error {
	if n.watcher == nil {
		return nil
	}
	return n.watcher.Close()
}

// unheard is what is logged of directories without notices.
const unheard = "changes are not told of, looking at them every so often; are the limits in /proc/sys/fs/inotify reached?"
