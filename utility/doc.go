// Package utility serves what clients do beside the agent: they run commands,
// search, read and watch files.
//
// A [Host] belongs to one session. It promises that the events of one command
// or watch come in order, the first and the last exactly once; that a command's
// output is shown whole and in order, with the command waiting for whoever is
// slow to take it; that nothing of a connection outlives it and nothing of the
// session outlives the host; that no credential of the server reaches a command
// unless the operator passed it by name (D10); and that nothing is read outside
// the workspace. Who may ask for what is not decided here, except that only the
// connection that started something may end it or write to it.
//
// A command may leave its directory and do whatever its user may: the workspace
// is no sandbox. What a command leaves in the background ends with it, and with
// the server however that ends; see package child for how far that reaches.
// Windows has neither groups nor terminals: there the command itself is killed,
// its descendants are not, and one that holds its output open delays its last
// event.
package utility
