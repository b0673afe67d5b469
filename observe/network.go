package observe

import "github.com/prometheus/client_golang/prometheus"

// A Network says what the clients of the process take up, and how often they
// were refused more since it started.
type Network struct {
	Waiting    int // TCP connections without a request of a known principal
	Requests   int // under way
	Unfinished int // bytes of messages that are not complete
	Unread     int // bytes of answers that clients have not read

	Connections, Messages, Answers Refusals
	Evicted                        uint64 // waiting connections that were closed for others
	NoDescriptors                  uint64 // times that no connection could be accepted for want of one
}

// Refusals are those because of the bounds of all clients, and because of that
// of one principal.
type Refusals struct{ All, Principal uint64 }

// WatchNetwork adds the numbers of a network, which are asked for whenever
// somebody reads the metrics. It is called once.
func (o *Observer) WatchNetwork(read func() Network) {
	o.registry.MustRegister(newTraffic(read)) // panics only if a metric is registered twice
}

// A traffic is the part of the metrics that a network counts.
type traffic struct {
	read func() Network

	waiting, requests, unfinished, unread *prometheus.Desc
	limited, evicted, descriptors         *prometheus.Desc
}

func newTraffic(read func() Network) *traffic {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("maestro_"+name, help, labels, nil)
	}
	return &traffic{
		read:        read,
		waiting:     desc("waiting_connections", "TCP connections without a request of a known principal."),
		requests:    desc("requests_in_flight", "Requests of known principals that are being answered."),
		unfinished:  desc("unfinished_bytes", "Memory of messages and bodies that are not complete."),
		unread:      desc("unread_bytes", "Memory of answers that clients have not read."),
		limited:     desc("limited_total", "What was refused because of a bound of all clients or of one principal.", "what", "bound"),
		evicted:     desc("evicted_connections_total", "Waiting TCP connections that were closed because there were too many."),
		descriptors: desc("accept_failures_total", "Times that no connection could be accepted for want of descriptors."),
	}
}

// Describe implements [prometheus.Collector].
func (t *traffic) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(t, out) }

// Collect implements [prometheus.Collector].
func (t *traffic) Collect(out chan<- prometheus.Metric) {
	n := t.read()
	gauge := func(d *prometheus.Desc, value int) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value))
	}
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	gauge(t.waiting, n.Waiting)
	gauge(t.requests, n.Requests)
	gauge(t.unfinished, n.Unfinished)
	gauge(t.unread, n.Unread)
	for what, refused := range map[string]Refusals{"connection": n.Connections, "message": n.Messages, "answer": n.Answers} {
		counter(t.limited, refused.All, what, "all")
		counter(t.limited, refused.Principal, what, "principal")
	}
	counter(t.evicted, n.Evicted)
	counter(t.descriptors, n.NoDescriptors)
}
