// Package acpserver makes Maestro an agent of the Agent Client Protocol (ACP).
// An editor that speaks ACP on the standard streams attaches to sessions of a
// server as one of their clients.
//
// Every event of a session is sent to the editor once and in order, also when
// the connection to the server is lost and restored, and whoever is in control.
// The answer to session/load comes after the history, and the answer to
// session/prompt after all output of the run. A question is sent to the editor
// only while the editor may answer it, and answered at most once; the package
// never answers for a person. It stores nothing: sessions belong to the server.
//
// The package uses the ACP library's message types only. It has its own
// connection, because the library's handles messages in any order, has no
// memory bound, and does not answer lines that it cannot parse.
package acpserver
