// Package powercut is a disk that records its writes and flushes, and builds from
// such a recording every kind of content that a power cut can leave of the disk. Tests
// of crash safety use it: they record the writes of an operation, then start on each
// content.
//
// The recorded disk is a loop device on a file of a FUSE filesystem which this
// process serves, so that filesystems on it are real and each of their requests
// arrives in the order in which the block layer issued it. The loop driver has no
// forced unit access: such a write arrives as a write and a flush after it.
//
// The disk has a volatile cache, as the block layer of Linux assumes
// (Documentation/block/writeback_cache_control.rst): a write survives a power cut
// for certain only if it completed before a flush that completed, too. Any subset of the
// others survives, and of a write any of its sectors.
//
// What it does not model: a disk that damages sectors which it does not write, and
// one that reports a flush as complete and loses data nevertheless, except on request
// (Recording.WithoutFlushes).
package powercut
