// Package control is how bench speaks to a server it measures: one JSON object
// per line, orders on the server's standard input and reports on its standard
// output. Every server under measurement, ours and the peers', runs the same
// code of this package, so that pacing, payloads and memory are taken alike.
//
// It promises no measurement of processor time: bench reads that from the
// kernel, for servers that do not speak this protocol too.
package control

// An Op is what an order asks for.
type Op string

const (
	OpStatus  Op = "status"  // report the counters as they are
	OpSettle  Op = "settle"  // collect garbage, give memory back, then report
	OpPublish Op = "publish" // publish messages, then report
)

// An Order is one line to the server.
type Order struct {
	Op    Op     `json:"op"`
	First uint64 `json:"first,omitempty"` // number of the first message of a publish
	Count int    `json:"count,omitempty"` // how many messages to publish
	Rate  int    `json:"rate,omitempty"`  // messages per second; zero means as fast as possible
}

// A Greeting is the server's first line.
type Greeting struct {
	Addr string `json:"addr"` // host:port that viewers connect to
}

// A Report is the server's answer to one order.
type Report struct {
	Viewers    int    `json:"viewers"`    // viewers that would get the next message
	Dropped    int64  `json:"dropped"`    // messages the server knows it did not deliver
	Goroutines int    `json:"goroutines"` //
	Resident   int64  `json:"resident"`   // resident set, bytes
	Mallocs    uint64 `json:"mallocs"`    // heap objects ever allocated

	// Of OpPublish only.
	Began   int64  `json:"began,omitempty"`    // unix nanoseconds
	Ended   int64  `json:"ended,omitempty"`    // unix nanoseconds, when the last publish call had returned
	CallP50 int64  `json:"call_p50,omitempty"` // nanoseconds one publish call took, median
	CallP99 int64  `json:"call_p99,omitempty"` // the same, 99th percentile
	Error   string `json:"error,omitempty"`    // why the order failed
}
