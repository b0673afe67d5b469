// Package observe is the server as its operators see it: metrics for
// Prometheus, spans for OpenTelemetry, profiles.
//
// It promises that watching changes nothing. What the hub calls with its lock
// held returns at once, does no I/O and, while tracing is off, allocates only
// for what is rare. Every label takes its values from a closed set, and neither
// labels nor spans hold what was said: no prompts, arguments, outputs or texts
// of errors.
//
// It knows neither the hub nor the journal. [Session] has the methods that the
// hub calls, and [Gauges] are asked when somebody looks.
package observe
