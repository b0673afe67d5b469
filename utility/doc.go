// Package utility serves what clients do besides the agent: they run commands,
// and search, read and watch files.
//
// A [Host] belongs to one session.
//   - The events of a command or watch come in order, the first and the last
//     exactly once.
//   - A command's output is published whole and in order. The command waits if
//     the output is not taken.
//   - What a connection started ends with the connection, and what the session
//     started ends with the host.
//   - No credential of the server reaches a command unless the operator passed
//     it by name (D10).
//   - Files outside the workspace are not read.
//   - Only the connection that started a command or watch may end it or write
//     to it. All other permissions are checked elsewhere.
//
// A command may leave its directory and do all that its user may do: the
// workspace is no sandbox. Background processes of a command end with the
// command, and with the server even if the server is killed; see package proc
// for the exceptions. On Windows, which has neither process groups nor
// terminals, only the command itself is killed. A descendant that holds its
// output open delays its last event.
//
// The package is a part of the server. Its API may change in any version; programs that
// embed a server use package server.
package utility
