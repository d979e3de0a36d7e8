package wine

import "golang.org/x/sys/windows"

// Running tells whether ntdll is wine's: only that one exports wine_get_version.
func Running() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}
