// Package hosted is one process as a control plane sees it: bound to one runner
// session, one workspace and one Maestro session, asked who it is, told to
// drain, and started again from what the drain left.
//
// It promises that a drain happens once however often it is asked for, that a
// manifest under its final name is complete, and that no path in it leaves the
// workspace. It uploads nothing and deletes nothing: that is the control
// plane's. What the session does when it stops is the hub's, behind [Session].
package hosted
