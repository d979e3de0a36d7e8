package win32

// Below is what a Directory can do several levels down in one call. It is for
// speed alone: whatever it does not answer, Directory's own methods do, level by
// level. No reparse point is gone through on the way: that is
// ERROR_STOPPED_ON_SYMLINK (681), mounted folders as well.
type Below interface {
	// OpenBelow opens a directory as Directory.Open does.
	OpenBelow(names []string) (Directory, error)
	// StatBelow describes an entry as Directory.Stat does, but may leave its tag out.
	// ERROR_FILE_NOT_FOUND, or ERROR_PATH_NOT_FOUND where it is the way that is
	// missing, or a file.
	StatBelow(names []string) (FileInfo, error)
}
