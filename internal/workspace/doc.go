// Package workspace reads, lists and writes the directory tree of a session. It
// keeps every path of a client inside the root, and it decides which files
// belong to the user.
// Every access goes through [os.Root]. So the check applies to the file that
// was opened, not to the text of a path: a symbolic link that is swapped in
// between check and use cannot lead outside. An absolute symbolic link is
// refused, even if it points inside the root. The package does not restrict the
// child processes of a session.
// Files are listed as git lists them, but without running git. The ignore rules
// come from the same files that git reads: the ignore files of the repository
// around the root, and the files that git's configuration names. They may lie
// outside the root; nothing but rules is taken from them. Git's index says which
// files are tracked.
// Not supported are: configuration in other variables than GIT_CONFIG_GLOBAL,
// GIT_CONFIG_SYSTEM and GIT_CONFIG_NOSYSTEM; a system configuration at another
// path than /etc/gitconfig; includes that depend on remotes; core.worktree,
// which would lead outside; split indexes; and the part of an ignore file after
// the first 1 MiB.
// The configuration and the rules have limits, so a hostile tree cannot use up
// the time or the memory of a listing.
package workspace
