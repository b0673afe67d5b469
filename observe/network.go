package observe

import "github.com/prometheus/client_golang/prometheus"

// A Network has the resources that clients of the process use now, and the
// refusals since its start.
type Network struct {
	Waiting    int // TCP connections without a request of a known principal
	Requests   int // under way
	Unfinished int // bytes of messages that are not complete
	Unread     int // bytes of answers that clients have not read

	Connections, Messages, Answers Refusals
	Evicted                        uint64 // waiting connections that were closed to make room
	NoDescriptors                  uint64 // failures to accept a connection because no descriptor was left
}

// Refusals counts refusals because of the bounds of all clients, and because of
// the bound of one principal.
type Refusals struct{ All, Principal uint64 }

// WatchNetwork adds metrics from read, which is called whenever metrics are
// read. Call it once.
func (o *Observer) WatchNetwork(read func() Network) {
	o.registry.MustRegister(newNetworkCollector(read)) // panics only if a metric is registered twice
}

// A networkCollector is the collector of a Network's metrics.
type networkCollector struct {
	read func() Network

	waiting, requests, unfinished, unread *prometheus.Desc
	limited, evicted, descriptors         *prometheus.Desc
}

func newNetworkCollector(read func() Network) *networkCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("maestro_"+name, help, labels, nil)
	}
	return &networkCollector{
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
func (t *networkCollector) Describe(out chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(t, out)
}

// Collect implements [prometheus.Collector].
func (t *networkCollector) Collect(out chan<- prometheus.Metric) {
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
