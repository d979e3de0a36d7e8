// Package native is Windows itself: the calls of package win32 as Windows has
// them. It decides nothing: each method is one call, or the few that Windows
// needs for one answer, and gives the number that this very call returned.
//
// On other systems the package is empty.
package native
