// Package hosted is the runner of one process for a control plane. The runner
// is bound to one runner session, one workspace and one Maestro session. The
// control plane asks for its identity, drains it, and restarts it from the
// result of the drain.
//
// A drain happens once, however often it is requested. A manifest under its
// final name is complete, and no path in it leaves the workspace. The package
// uploads and deletes nothing; the control plane does. The hub stops the
// session, behind [Session].
package hosted
