package supervise

import "github.com/fsnotify/fsnotify"

// notices are the inotify events of one directory. There are none while the limits
// of fs.inotify are reached: the caller polls the directory then.
type notices struct {
	open    func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher // nil when there is none
}

// of watches a directory, also one that was made again. The error is why there are
// no notices.
func (n *notices) of(directory string) (err error) {
	if n.watcher == nil {
		if n.watcher, err = n.open(); err != nil {
			n.watcher = nil
			return err
		}
	}
	return n.watcher.Add(directory)
}

// channels are never closed, and nil if there are no notices. An error on lost means
// that events were lost.
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

// unwatchedText is logged for directories without notices.
const unwatchedText = "inotify does not report changes, polling instead; are the limits in /proc/sys/fs/inotify reached?"
