package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/session"
)

// limits is what clients are allowed to use up.
type limits struct {
	frameBytes, lineBytes              int
	connections, controllers, sessions int
	principalConnections               int
	addressConnections                 int
	unfinished, principalUnfinished    int // bytes
	attachRate                         float64
	attachBurst                        int
	requestRate                        float64
	requestBurst                       int
	handshake, write                   time.Duration
	header, read, idle                 time.Duration
	headerBytes                        int
	commands, watches, watchedDirs     int
	kept                               int
	commandTime                        time.Duration
	readBytes                          int64
	requests                           map[string]string // duration or never, by type
}

// How many sessions there may be, open and on the disk of one scope.
const (
	defaultSessions = 1024
	defaultKept     = 10_000
)

func (l *limits) register(cmd *cobra.Command) {
	l.sessions, l.kept = defaultSessions, defaultKept
	f := cmd.Flags()
	f.IntVar(&l.frameBytes, "max-frame-bytes", contracts.MaxSocketBytes, "longest message of a network client")
	f.IntVar(&l.lineBytes, "max-line-bytes", contracts.MaxLineBytes, "longest line on standard input")
	f.IntVar(&l.connections, "max-connections", 16384, "connections at a time; a sixteenth is reserved for credentials that are neither for one session nor for viewing")
	f.IntVar(&l.principalConnections, "max-principal-connections", 0, "connections of one principal except the owner; 0 means half of --max-connections")
	f.IntVar(&l.addressConnections, "max-address-connections", 0, "connections of one address that wait for a request; 0 means three quarters of --max-connections")
	f.IntVar(&l.unfinished, "max-unfinished-bytes", 0, "memory for incomplete messages and bodies, a quarter reserved as for --max-connections; 0 means 32 times --max-frame-bytes. Unread answers with a state may take four times as much")
	f.IntVar(&l.principalUnfinished, "max-principal-unfinished-bytes", 0, "memory as for --max-unfinished-bytes of one principal except the owner; 0 means a quarter of it")
	f.IntVar(&l.controllers, "max-controllers", 64, "connections of a session with the role controller")
	f.Float64Var(&l.attachRate, "attach-rate", 512, "attachments per second of one principal, on average; negative means no limit")
	f.IntVar(&l.attachBurst, "attach-burst", 2048, "attachments of one principal at once")
	f.Float64Var(&l.requestRate, "request-rate", 200, "HTTP requests per second of one principal, on average; negative means no limit")
	f.IntVar(&l.requestBurst, "request-burst", 1000, "HTTP requests of one principal at once")
	f.DurationVar(&l.handshake, "handshake-timeout", contracts.DefaultHandshakeTimeout, "time for a client to send hello")
	f.DurationVar(&l.write, "write-timeout", contracts.DefaultWriteTimeout, "time for a client to accept written data")
	f.DurationVar(&l.header, "header-timeout", 5*time.Second, "time for a client to send the header of a request")
	f.DurationVar(&l.read, "read-timeout", 30*time.Second, "time for a client to send a whole request")
	f.DurationVar(&l.idle, "idle-timeout", 2*time.Minute, "time between two requests on one connection")
	f.IntVar(&l.headerBytes, "max-header-bytes", 32<<10, "longest header of a request")
	f.IntVar(&l.commands, "max-commands", 32, "utility commands of a session at a time, at most 256")
	f.DurationVar(&l.commandTime, "max-command-time", 0, "longest time of a utility command; 0 means no limit")
	f.IntVar(&l.watches, "max-watches", 64, "file watches of a session at a time, at most 256")
	f.IntVar(&l.watchedDirs, "max-watched-dirs", 50_000, "directories in the file watches of all sessions")
	f.Int64Var(&l.readBytes, "max-read-bytes", 2<<20, "longest file that a client can read")
	f.StringToStringVar(&l.requests, "request-timeout", nil, "time for an answer to a type of question, such as approval=10m or user_input=never")
}

// registerSessions adds the flags of the command that has more than one session.
func (l *limits) registerSessions(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.sessions, "max-sessions", defaultSessions, "open sessions at a time")
	cmd.Flags().IntVar(&l.kept, "max-kept-sessions", defaultKept, "sessions of one scope on disk")
}

func (l *limits) check() error {
	if err := notNegative(map[string]int{
		"max-principal-connections": l.principalConnections, "max-address-connections": l.addressConnections,
		"max-unfinished-bytes": l.unfinished, "max-principal-unfinished-bytes": l.principalUnfinished,
	}); err != nil {
		return err
	}
	l.unfinished = cmp.Or(l.unfinished, 32*l.frameBytes)
	l.principalUnfinished = cmp.Or(l.principalUnfinished, l.unfinished/4)
	if l.principalUnfinished < 2*l.frameBytes || l.unfinished < l.principalUnfinished { // a message that grows is there twice
		return errors.New("--max-principal-unfinished-bytes must be at least twice --max-frame-bytes, and at most --max-unfinished-bytes")
	}
	if err := cmp.Or(
		positive(map[string]int{
			"max-frame-bytes": l.frameBytes, "max-line-bytes": l.lineBytes, "max-header-bytes": l.headerBytes,
			"max-connections": l.connections, "max-controllers": l.controllers, "max-sessions": l.sessions, "max-kept-sessions": l.kept,
			"attach-burst": l.attachBurst, "request-burst": l.requestBurst,
			"max-commands": l.commands, "max-watches": l.watches, "max-watched-dirs": l.watchedDirs,
		}),
		positive(map[string]int64{"max-read-bytes": l.readBytes}),
		positive(map[string]time.Duration{
			"handshake-timeout": l.handshake, "write-timeout": l.write, "header-timeout": l.header,
			"read-timeout": l.read, "idle-timeout": l.idle,
		}),
	); err != nil {
		return err
	}
	if l.commands > session.MaxCommands || l.watches > session.MaxWatches { // snapshots would not show them all
		return fmt.Errorf("--max-commands and --max-watches must not be more than %d and %d", session.MaxCommands, session.MaxWatches)
	}
	if l.commandTime < 0 {
		return errors.New("--max-command-time must not be negative")
	}
	_, err := l.requestTimeouts()
	return err
}

// requestTimeouts returns how long each type waits that was given; negative is
// for ever.
func (l *limits) requestTimeouts() (map[contracts.RequestType]time.Duration, error) {
	timeouts := map[contracts.RequestType]time.Duration{}
	for name, text := range l.requests {
		kind := contracts.RequestType(name)
		if !slices.Contains(contracts.RequestTypes(), kind) {
			return nil, fmt.Errorf("--request-timeout %s: want one of %q", name, contracts.RequestTypes())
		}
		if text == "never" {
			timeouts[kind] = -1
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("--request-timeout %s=%s: want a positive duration or never", name, text)
		}
		timeouts[kind] = d
	}
	return timeouts, nil
}

// positive refuses the first flag, by name, that is not positive.
func positive[T cmp.Ordered](flags map[string]T) error {
	return refuse(flags, "must be positive", func(v, zero T) bool { return v <= zero })
}

// notNegative refuses the first flag, by name, that is negative.
func notNegative[T cmp.Ordered](flags map[string]T) error {
	return refuse(flags, "must not be negative", func(v, zero T) bool { return v < zero })
}

func refuse[T cmp.Ordered](flags map[string]T, why string, bad func(v, zero T) bool) error {
	var zero T
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if v := flags[name]; bad(v, zero) {
			return fmt.Errorf("--%s %v %s", name, v, why)
		}
	}
	return nil
}
