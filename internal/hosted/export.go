package hosted

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-028515a8/maestro/contracts"
)

// wholeWorkspace is the export of a drain that names no paths.
var wholeWorkspace = []string{"."}

// resolveExports resolves the paths that a drain names. A path that leaves the
// root is refused with workspace_violation, whether or not it exists. A path
// that does not exist is refused with bad_request.
//
// stopped says that the paths were checked before the session stopped. A path
// that has disappeared since is listed as missing and does not prevent the
// manifest.
func resolveExports(root string, paths []string, stopped bool) ([]contracts.ExportPath, error) {
	list := make([]contracts.ExportPath, len(paths))
	for i, path := range paths {
		e, err := export(root, path)
		if err != nil {
			return nil, err
		}
		if e.Type == missingType && !stopped {
			return nil, unavailable(path)
		}
		list[i] = e
	}
	return list, nil
}

const missingType = "missing"

func unavailable(path string) error {
	return &contracts.Error{Code: contracts.CodeBadRequest, Message: "Export path is unavailable: " + path}
}

func export(root, path string) (contracts.ExportPath, error) {
	full := path
	if !filepath.IsAbs(path) {
		full = root + string(filepath.Separator) + path // not joined, because links must be resolved before ..
	}
	at, err := locate(full)
	if err != nil {
		return contracts.ExportPath{}, unavailable(path)
	}
	rel, ok := inside(root, at.path)
	if !ok {
		return contracts.ExportPath{}, &contracts.Error{
			Code: contracts.CodeWorkspaceViolation, Message: "Export path escapes hosted runner workspace root: " + path,
		}
	}
	e := contracts.ExportPath{Input: path, Path: at.path, RelativePath: filepath.ToSlash(rel), Type: missingType}
	if !at.exists {
		return e, nil
	}
	info, err := os.Lstat(at.path)
	switch {
	case err != nil, info.Mode()&fs.ModeSymlink != 0: // changed since locate
	case info.IsDir():
		e.Type = "directory"
	case info.Mode().IsRegular():
		e.Type = "file"
	default:
		e.Type = "other"
	}
	return e, nil
}
