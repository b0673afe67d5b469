package main

import (
	"slices"
	"strconv"

	"github.com/seed-028515a8/maestro/contracts"
)

// Names of contenders that others are compared with.
const (
	nameHub         = "maestro hub"
	nameHubEvents   = "maestro hub, SSE"
	nameNaive       = "coder/websocket"
	nameNaiveEvents = "net/http SSE, a flush per event"
	nameRaw64       = "raw TCP, 64 a write"
)

// A contender is one server that can be measured.
type contender struct {
	name    string
	about   string // how it is set up
	program string // key of programs
	args    []string
	dialect dialect
	viewers int // where the same server is measured with several numbers of them
}

// attachDialect is how a client attaches to maestro. hello_ok is the last thing
// it is sent before live events.
func attachDialect(sessionID string, role contracts.Role) dialect {
	return dialect{
		path:     "/api/headless/ws?role=" + string(role) + "&sessionId=" + sessionID,
		protocol: contracts.Subprotocol,
		opcode:   opText,
		opening:  `{"type":"hello","protocol_version":"` + contracts.ProtocolVersion + `","role":"` + string(role) + `"}`,
		answer:   `"type":"hello_ok"`,
	}
}

// streamDialect is how a viewer follows maestro's events over HTTP. The state is
// the first thing it is sent.
func streamDialect(sessionID string) dialect {
	return dialect{path: "/api/headless/sessions/" + sessionID + "/events", events: true, answer: `"type":"snapshot"`}
}

// hubContender is our own fan-out without the agent and the disk, which the
// peers do not have either.
var hubContender = contender{
	nameHub,
	"the product's hub, journal (in memory) and WebSocket transport; every event is checked, encoded, folded into the session's state and kept for replay",
	"hubserver", nil, attachDialect("bench", contracts.RoleViewer), 0,
}

// eventsContender is the same with viewers that follow over HTTP.
var eventsContender = contender{
	nameHubEvents,
	"the same program with its HTTP transport: a stream of server-sent events for each viewer",
	"hubserver", nil, streamDialect("bench"), 0,
}

// contenders are the servers that take part in fan-out, ours first.
func (b *bench) contenders(messages int) []contender {
	peer := func(name, design string, d dialect, about string) contender {
		return contender{name, about, "peers", []string{"-design", design, "-messages", strconv.Itoa(messages)}, d, 0}
	}
	all := []contender{
		hubContender,
		eventsContender,
		peer(nameNaive, "naive", plainDialect, "a channel of 1024 messages and a goroutine per viewer, `Conn.Write` without a timeout; the publisher waits when a channel is full"),
		peer("gorilla/websocket", "gorilla", plainDialect, "the same channels with one `PreparedMessage` per message and buffers of 1 KiB"),
		peer("lxzan/gws", "gws", plainDialect, "`Broadcaster`; its queues have no bound"),
		peer("olahol/melody", "melody", plainDialect, "`Broadcast`, with buffers that hold the whole run so that it need not drop"),
		peer("nats-server", "nats", natsDialect, "embedded, default limits, published in-process; viewers subscribe over its WebSocket listener"),
		peer(nameNaiveEvents, "sse", eventDialect, "the same channels, read by the handlers: `fmt.Fprintf` of one event and a `Flush` for every message"),
		peer("raw TCP, 1 a write", "raw1", rawDialect, "the floor: no handshake, nothing read, a shared log of ready frames, a write call per message"),
		peer(nameRaw64, "raw64", rawDialect, "the same with at most 64 messages per write call"),
	}
	return slices.DeleteFunc(all, func(c contender) bool { return !b.designs.MatchString(c.name) })
}

// start runs a contender's program for as long as the trial lasts.
func (t *trial) start(c contender) *server {
	s := must(launchControlled(t.ctx, c.dialect, t.built[c.program], c.args...))
	t.atEnd(s.stop)
	return s
}
