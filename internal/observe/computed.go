package observe

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauges returns values that the session keeps itself. It is called whenever
// metrics are read, possibly concurrently and after the session has ended, and
// must return soon.
type Gauges func() (Lag, Totals)

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

// A computed is the collector of metrics that are computed when they are read.
// It calls gauge or counter for each value.
type computed func(gauge, counter Measure)

// A Measure reports the value of the metric maestro_NAME. labels are names and
// values in turn.
type Measure func(name, help string, value float64, labels ...string)

// Describe implements [prometheus.Collector].
func (c computed) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements [prometheus.Collector].
func (c computed) Collect(out chan<- prometheus.Metric) {
	of := func(kind prometheus.ValueType) Measure {
		return func(name, help string, value float64, labels ...string) {
			constant := prometheus.Labels{}
			for pair := range slices.Chunk(labels, 2) {
				constant[pair[0]] = pair[1]
			}
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc("maestro_"+name, help, nil, constant), kind, value)
		}
	}
	c(of(prometheus.GaugeValue), of(prometheus.CounterValue))
}

func (o *Observer) sessionMetrics(gauge, counter Measure) {
	open, total := o.open()
	states := map[string]int{stateIdle: 0, stateRunning: 0, stateWaiting: 0}
	var lag Lag
	var age time.Duration
	now := time.Now()
	for _, s := range open {
		states[s.state()]++
		age = max(age, s.oldest(now))
		itsLag, itsTotals := s.read()
		lag = lag.worse(itsLag)
		total.add(itsTotals)
	}
	for state, n := range states {
		gauge("sessions", "Open sessions: idle, running a prompt, or waiting for the answer to a question.",
			float64(n), "state", state)
	}
	gauge("request_age_seconds", "Age of the oldest open question of any open session. A question from before a restart counts from the opening of its session.", age.Seconds())
	gauge("followers", "Sockets and streams that follow a session.", float64(lag.Followers))
	gauge("followers_behind", "Followers that have not been written everything there is.", float64(lag.Behind))
	const behind = " that the worst follower of any session has still to be written."
	gauge("follower_lag_entries", "Journal entries"+behind, float64(lag.Entries))
	gauge("follower_lag_bytes", "Estimated bytes"+behind, float64(lag.Bytes))
	gauge("follower_lag_seconds", "Age of the oldest entry that a follower of any session has still to be written.", lag.Age.Seconds())
	counter("merged_entries_total", "Entries that reached a lagging follower in the frame of a later one.", float64(total.Merged))
	counter("slow_consumers_total", "Connections closed because they did not take what was written.", float64(total.SlowConsumers))
	counter("silent_connections_total", "Connections closed because nothing was heard from them.", float64(total.Silent))
	counter("agent_waits_total", "Times an agent waited for a client on standard output.", float64(total.AgentWaits))
	counter("command_waits_total", "Times a client's command waited for its client to read what it had written.",
		float64(total.CommandWaits))
}

// Collect adds metrics from read, which calls gauge or counter for each value
// whenever metrics are read. Call Collect before metrics are read.
func (o *Observer) Collect(read func(gauge, counter Measure)) {
	o.collectors = append(o.collectors, computed(read))
}
