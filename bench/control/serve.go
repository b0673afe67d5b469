package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Server is one way to send a stream of messages to many viewers.
type Server struct {
	Addr string

	// Publish sends one message's text to every viewer. It is called from one
	// goroutine. It may wait for viewers but must not drop.
	Publish func(text []byte) error

	// Viewers is the number of viewers that a message published now would
	// reach. A viewer's handshake returns before that on most servers.
	Viewers func() int

	// Dropped is the number of messages the server refused to deliver. Nil
	// means that it has no way of dropping.
	Dropped func() int64
}

// Serve greets and then answers orders until in ends, which is also what
// happens when bench dies: no server outlives it.
func (s *Server) Serve(in io.Reader, out io.Writer) error {
	enc, dec := json.NewEncoder(out), json.NewDecoder(in)
	if err := enc.Encode(Greeting{Addr: s.Addr}); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	for {
		var order Order
		if err := dec.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read order: %w", err)
		}
		if err := enc.Encode(s.obey(order)); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
}

func (s *Server) obey(order Order) Report {
	var rep Report
	var err error
	switch order.Op {
	case OpStatus:
	case OpSettle:
		settle()
	case OpPublish:
		err = s.publish(order, &rep)
	default:
		err = fmt.Errorf("unknown order %q", order.Op)
	}
	if err == nil {
		rep.Resident, err = Resident(os.Getpid())
	}
	if err != nil {
		rep.Error = err.Error()
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	rep.Mallocs = mem.Mallocs
	rep.Viewers = s.Viewers()
	rep.Goroutines = runtime.NumGoroutine()
	if s.Dropped != nil {
		rep.Dropped = s.Dropped()
	}
	return rep
}

// publish sends order.Count messages and times each call.
func (s *Server) publish(order Order, rep *Report) error {
	calls := make([]int64, 0, max(order.Count, 0))
	began := time.Now()
	rep.Began = began.UnixNano()
	for i := range order.Count {
		if order.Rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(order.Rate))))
		}
		now := time.Now()
		text := Text(order.First+uint64(i), now)
		before := time.Now()
		if err := s.Publish(text); err != nil {
			return fmt.Errorf("publish message %d: %w", i, err)
		}
		calls = append(calls, time.Since(before).Nanoseconds())
	}
	rep.Ended = time.Now().UnixNano()
	if len(calls) > 0 {
		slices.Sort(calls)
		rep.CallP50, rep.CallP99 = calls[(len(calls)-1)/2], calls[(len(calls)-1)*99/100]
	}
	return nil
}

// settle leaves only what is in use resident. One collection is not enough: the
// first may only queue finalizers and empty pools, and each halves a stack that
// has become too large.
func settle() {
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
}

// Resident is the resident set of a process in bytes.
func Resident(pid int) (int64, error) { return Memory(pid, "VmRSS") }

// Memory is a figure of a process's memory in bytes, from /proc/PID/status.
func Memory(pid int, figure string) (int64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, figure+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in the status of process %d", figure, pid)
}
