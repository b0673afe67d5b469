package workspace

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"os"
	"syscall"
)

// direntKinds maps the types of directory entries to those of package fs.
var direntKinds = map[byte]fs.FileMode{
	syscall.DT_REG: 0, syscall.DT_DIR: fs.ModeDir, syscall.DT_LNK: fs.ModeSymlink,
	syscall.DT_FIFO: fs.ModeNamedPipe, syscall.DT_SOCK: fs.ModeSocket, syscall.DT_CHR: fs.ModeCharDevice, syscall.DT_BLK: fs.ModeDevice,
}

// readEntries appends the next entries of a directory to all and reports
// whether there may be more. [os.File.ReadDir] makes one more system call for
// every file, which takes as long as the rest of a listing.
func readEntries(dir *os.File, buf []byte, all []entry) ([]entry, bool) {
	raw, err := dir.SyscallConn()
	if err != nil {
		return all, false
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		again := error(syscall.EINTR)
		for again == syscall.EINTR {
			n, again = syscall.ReadDirent(int(fd), buf)
		}
	})
	if err != nil || n <= 0 {
		return all, false
	}
	for rest := buf[:n]; len(rest) > 0; {
		// An entry is a struct linux_dirent64: inode, offset, size, type, name.
		size := binary.NativeEndian.Uint16(rest[16:])
		name, _, _ := bytes.Cut(rest[19:size], []byte{0})
		if s := string(name); s != "." && s != ".." {
			kind, known := direntKinds[rest[18]]
			if !known {
				kind = fs.ModeIrregular
			}
			all = append(all, entry{s, kind})
		}
		rest = rest[size:]
	}
	return all, true
}
