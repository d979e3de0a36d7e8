// Package native implements package win32 by the calls of Windows. It makes no decisions:
// each method is one call, or the few calls that one answer needs, and returns the
// number that the call returned.
//
// On other systems the package is empty.
package native
