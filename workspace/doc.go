// Package workspace is the directory tree that a session works in: the root
// that no path given by a client may leave, and which files in it are the
// user's.
//
// It promises that containment is decided by what was opened, not by what a
// path looked like a moment before: everything goes through [os.Root], so a
// symbolic link swapped in between check and use cannot escape. Absolute
// symbolic links are refused even where they point back inside. It promises
// nothing about what children of the session do with the file system.
//
// Files are listed as git would list them, without git: what only git knows, such
// as that an ignored file is tracked, is left to whoever can ask it. Rules come
// from where git takes them, also from outside the root: the ignore files of the
// repository around it and the files that git's configuration names. They are
// nothing but rules then. Not covered are configuration in other variables than
// GIT_CONFIG_GLOBAL, GIT_CONFIG_SYSTEM and GIT_CONFIG_NOSYSTEM, a system's
// configuration that is not /etc/gitconfig, includes that depend on remotes,
// core.worktree, which would lead elsewhere, and what is beyond the first mebibyte
// of an ignore file. Configuration and rules are bounded, so that a hostile tree
// costs neither a listing's time nor its memory.
package workspace
