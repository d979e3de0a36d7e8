// Package abi compares what this project has written down of Windows' structures
// with what a C compiler makes of the headers. The compiler and wine are needed:
// test/windows/wine/setup.sh --with-mingw installs both.
package abi
