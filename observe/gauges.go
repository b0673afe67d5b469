package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauges are functions for values that the session keeps itself. They are
// called whenever metrics are read, possibly concurrently and after the session
// has ended, and must return soon. Either may be nil.
type Gauges struct {
	Lag    func() Lag
	Totals func() Totals
}

// A Lag says how far the followers of a session are behind. Entries, Bytes and
// Age are those of the worst follower.
type Lag struct {
	Followers int           // attached
	Behind    int           // with entries to read
	Entries   uint64        // unread entries
	Bytes     int64         // of their bodies; an estimate
	Age       time.Duration // of the oldest unread entry
}

// worse returns the maximum of each number, and the sum of Followers and
// Behind.
func (l Lag) worse(other Lag) Lag {
	return Lag{
		Followers: l.Followers + other.Followers, Behind: l.Behind + other.Behind,
		Entries: max(l.Entries, other.Entries), Bytes: max(l.Bytes, other.Bytes), Age: max(l.Age, other.Age),
	}
}

// Totals are counts since the session was opened. They never decrease.
type Totals struct {
	Merged        uint64 // entries that reached a follower in the frame of another entry
	SlowConsumers int64  // connections closed because the client did not read
	Silent        int64  // connections closed because the client was silent
	AgentWaits    int64  // times the agent waited for a local client
	CommandWaits  int64  // times a command waited for its owner to read
}

func (t *Totals) add(other Totals) {
	t.Merged += other.Merged
	t.SlowConsumers += other.SlowConsumers
	t.Silent += other.Silent
	t.AgentWaits += other.AgentWaits
	t.CommandWaits += other.CommandWaits
}

// A gaugeCollector is the collector of metrics that are computed when they are
// read.
type gaugeCollector struct {
	observer *Observer

	sessions, followers, behind   *prometheus.Desc
	lagEntries, lagBytes, lagTime *prometheus.Desc
	merged, slow, silent          *prometheus.Desc
	agentWaits, commandWaits      *prometheus.Desc
}

func newGaugeCollector(o *Observer) *gaugeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("maestro_"+name, help, labels, nil)
	}
	return &gaugeCollector{
		observer:   o,
		sessions:   desc("sessions", "Open sessions: idle, running a prompt, or waiting for the answer to a question.", "state"),
		followers:  desc("followers", "Sockets and streams that follow a session."),
		behind:     desc("followers_behind", "Followers that have not been written everything there is."),
		lagEntries: desc("follower_lag_entries", "Journal entries that the worst follower of any session has still to be written."),
		lagBytes:   desc("follower_lag_bytes", "Estimated bytes that the worst follower of any session has still to be written."),
		lagTime:    desc("follower_lag_seconds", "Age of the oldest entry that a follower of any session has still to be written."),
		merged:     desc("merged_entries_total", "Entries that reached a lagging follower in the frame of a later one."),
		slow:       desc("slow_consumers_total", "Connections closed because they did not take what was written."),
		silent:     desc("silent_connections_total", "Connections closed because nothing was heard from them."),

		agentWaits:   desc("agent_waits_total", "Times an agent waited for a client on standard output."),
		commandWaits: desc("command_waits_total", "Times a client's command waited for its client to read what it had written."),
	}
}

// Describe implements [prometheus.Collector].
func (c *gaugeCollector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements [prometheus.Collector].
func (c *gaugeCollector) Collect(out chan<- prometheus.Metric) {
	open, total := c.observer.open()
	states := map[string]int{stateIdle: 0, stateRunning: 0, stateWaiting: 0}
	var lag Lag
	for _, s := range open {
		states[s.state()]++
		lag = lag.worse(s.lag())
		total.add(s.totals())
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value)
	}
	for state, n := range states {
		gauge(c.sessions, float64(n), state)
	}
	gauge(c.followers, float64(lag.Followers))
	gauge(c.behind, float64(lag.Behind))
	gauge(c.lagEntries, float64(lag.Entries))
	gauge(c.lagBytes, float64(lag.Bytes))
	gauge(c.lagTime, lag.Age.Seconds())
	counter(c.merged, float64(total.Merged))
	counter(c.slow, float64(total.SlowConsumers))
	counter(c.silent, float64(total.Silent))
	counter(c.agentWaits, float64(total.AgentWaits))
	counter(c.commandWaits, float64(total.CommandWaits))
}
