// Package shape checks JSON texts against the closed shapes of the wire: the
// Go types of package contracts, read by reflection.
//
// It shares no code with the decoders that servers and clients of ours use, so
// that a defect in one is not excused by the same defect in the other.
package shape
