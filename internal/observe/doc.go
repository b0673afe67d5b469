// Package observe provides metrics for Prometheus, spans for OpenTelemetry, and
// profiles.
//
// Observing does not change the server. Methods that the hub calls with its
// lock held return at once, do no I/O and, while tracing is off, allocate for
// rare events only. Every label takes its values from a closed set. Neither
// labels nor spans contain prompts, arguments, outputs or texts of errors.
//
// The package does not know the hub or the journal. The hub calls the methods
// of [Session]; [Gauges] are called when metrics are read.
package observe
