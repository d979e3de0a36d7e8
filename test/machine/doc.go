// Package machine boots a whole Debian in QEMU, talks to it, cuts its power and
// starts it again: the machine laboratory, docs/guides/machine-laboratory.md. The
// tests are behind the build tag machine, since they boot machines for minutes:
// `make test-machine` and `make test-machine-nightly`.
package machine
