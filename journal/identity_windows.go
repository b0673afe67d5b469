package journal

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// identity returns a text that differs for a copy of f: its number in the volume,
// which stays when f or its directory is renamed. It is "" if the system does not
// provide it.
func identity(f *os.File) string {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return ""
	}
	return fmt.Sprint(uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow))
}
