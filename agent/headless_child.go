package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/seed-028515a8/maestro/agent/mask"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// maxBadLines bounds the lines in a row that are no events; one more kills the
// child.
const maxBadLines = 4

// A child is one process that speaks the headless protocol on its standard
// streams.
type child struct {
	*proc.Process
	receive func(contracts.Event) // called for each event, by one goroutine
	refuse  func(error)           // likewise for each line that is no event
}

// newChild returns a child that will run argv in o.Dir. receive and refuse are
// called until it is done; while they block, the child may block.
func newChild(argv []string, o Options, receive func(contracts.Event), refuse func(error)) *child {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = o.Dir, proc.Environ(os.Environ(), o.Hosted, o.EnvPass)
	return &child{
		Process: proc.NewProcess(cmd, proc.ProcessOptions{Name: "agent process", Log: mask.Log(o.Log, mask.Text)}),
		receive: receive, refuse: refuse,
	}
}

// send queues a command for the child. It does not block.
func (c *child) send(command contracts.Command) error {
	line, err := contracts.EncodeCommand(command)
	if err != nil {
		return err
	}
	if len(line) > contracts.MaxLineBytes {
		return fmt.Errorf("%s is longer than a line may be", command.CommandType())
	}
	return c.Send(append(line, '\n'))
}

// listen decodes the child's output line by line until it ends.
func (c *child) listen(stdout io.Reader) {
	lines := line.NewReader(stdout, contracts.MaxLineBytes)
	var decoder contracts.Decoder
	bad := 0
	for first := true; ; first = false {
		text, err := lines.Next()
		long := errors.Is(err, line.ErrLong)
		if err != nil && !long {
			return
		}
		if !long {
			if first {
				text = bytes.TrimPrefix(text, []byte("\uFEFF"))
			}
			if text = bytes.TrimSpace(text); len(text) == 0 {
				continue
			}
			var ev contracts.Event
			if ev, err = decoder.Event(text); err == nil {
				bad = 0
				c.receive(ev)
				continue
			}
			if errors.Is(err, contracts.ErrUnknownType) { // from a newer child
				bad = 0
				continue
			}
		}
		if bad++; bad > maxBadLines {
			c.Kill(fmt.Errorf("agent process killed: %d unparseable lines in a row", bad))
			return
		}
		c.refuse(fmt.Errorf("agent process wrote an unparseable line: %w", err))
	}
}

// shutdown asks the child to end, ends it if ctx or wait ends first, and
// returns when nothing of it is left.
func (c *child) shutdown(ctx context.Context, wait time.Duration) {
	_ = c.send(&contracts.Shutdown{}) // a child that does not read is killed
	c.Shutdown(ctx, wait, errors.New("agent process killed: it did not shut down"))
}
