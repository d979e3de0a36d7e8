// Package wine tells whether this process runs under wine rather than on
// Windows. The product asks only where wine would hang it, or follow a link that
// Windows does not; what wine merely does not do is found out by looking at the
// effect.
package wine
