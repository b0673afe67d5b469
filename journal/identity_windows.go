package journal

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// identity returns a text that a copy of f does not have: its number in the
// volume, which stays when f or its directory is renamed. It is "" if the system
// does not say.
func identity(f *os.File) string {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return ""
	}
	return fmt.Sprint(uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow))
}
