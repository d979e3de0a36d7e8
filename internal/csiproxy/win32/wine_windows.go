package win32

import "golang.org/x/sys/windows"

// UnderWine reports whether this process runs under wine rather than on Windows:
// only wine's ntdll exports wine_get_version. The product asks only where wine would
// hang it, or follow a link that Windows does not follow; what wine merely lacks
// shows in the effect.
func UnderWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}
