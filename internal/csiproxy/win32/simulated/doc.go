// Package simulated is a Windows machine in memory: it answers the calls of
// package win32 with the bytes and error numbers of Windows, on every system, so
// that all that is built on those calls is tested against its rules. Where
// Windows refuses it refuses, where Windows is lazy it is lazy.
package simulated
