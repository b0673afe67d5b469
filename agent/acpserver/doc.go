// Package acpserver is Maestro as an agent of the Agent Client Protocol (ACP): an
// editor that speaks it on the standard streams attaches to sessions of a server
// as one of their clients.
//
// It promises that what a session shows is passed on once and in order, whoever
// drives and however often the server goes away meanwhile; that the answer to
// session/load comes after the history and that to session/prompt after all that
// the run said; that a question is put to the editor only while the editor may
// answer it, and answered at most once; and that it never answers for a person.
// It keeps nothing: sessions belong to the server.
//
// Of the library it uses the types of what is sent. The connection is its own:
// the library's handles messages in any order, has no bound on what it holds, and
// leaves lines that it cannot parse without an answer.
package acpserver
