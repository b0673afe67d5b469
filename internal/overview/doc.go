// Package overview lists the sessions of a process and their open questions. An
// [Overview] knows the open sessions by their hubs and the others by stored summaries.
// Clients read pages of the list, or follow it: every follower of a scope gets the same
// bytes, which are encoded once.
//
// The inbox is the second list of an overview. It has the questions that people answer;
// answers go to the hub of the session.
package overview
