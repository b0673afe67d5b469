package localmodel

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A section says to which part of a reply an event belongs, so that a fault can
// find its place.
type section int

const (
	inStart section = iota
	inThinking
	inText
	inArgs
	inEnd
)

// A frame is one server-sent event.
type frame struct {
	in    section
	event string // empty if the form has no names
	data  []byte
}

// bytes returns the event as sent.
func (f frame) bytes() []byte {
	var out bytes.Buffer
	if f.event != "" {
		out.WriteString("event: " + f.event + "\n")
	}
	out.WriteString("data: ")
	out.Write(f.data)
	out.WriteString("\n\n")
	return out.Bytes()
}

// An ending is how a stream ends.
type ending int

const (
	endClean ending = iota // the response ends normally
	endAbort               // the connection breaks
	endHang                // nothing happens until the client leaves
)

// strike breaks the events of a reply as a fault says.
func strike(frames []frame, f *Fault, form wire) ([]frame, ending) {
	end := endClean
	if f.Abort {
		end = endAbort
	}
	middle := middleOf(frames, inText, inThinking, inArgs)
	switch f.Kind {
	case FaultCutText:
		return frames[:middle], end
	case FaultCutArgs:
		return frames[:middleOf(frames, inArgs, inText, inThinking)], end
	case FaultCutEnd:
		return slices.DeleteFunc(frames, func(f frame) bool { return f.in == inEnd }), end
	case FaultMalformed:
		broken := frames[middle]
		broken.data = broken.data[:len(broken.data)*2/3]
		return append(frames[:middle:middle], broken), end
	case FaultErrorEvent, FaultFailedEvent:
		return append(frames[:middle:middle], form.failedFrame(f.Kind, middle)), end
	case FaultHang:
		return frames[:middle], endHang
	}
	return frames, endClean
}

// middleOf returns the index after the first half of the events of a section.
// It takes the first of the given sections that the reply has. If the reply has
// none of them, middleOf returns the index after the first event.
func middleOf(frames []frame, sections ...section) int {
	for _, in := range sections {
		var at []int
		for i, f := range frames {
			if f.in == in {
				at = append(at, i)
			}
		}
		if len(at) > 0 {
			return at[(len(at)-1)/2] + 1
		}
	}
	return 1
}

// stream writes the events of a reply, whole or broken.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, form wire, frames []frame, f *Fault) {
	end, wait := endClean, s.opts.Pause
	if f != nil {
		frames, end = strike(frames, f, form)
		if f.Kind == FaultSlow {
			wait = f.pause()
		}
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for _, f := range frames {
		if sleep.For(ctx, wait) != nil || write(w, out, f.bytes()) != nil {
			return
		}
	}
	switch end {
	case endHang:
		_ = out.Flush() // otherwise a stream without events would not have begun
		<-ctx.Done()
	case endAbort:
		panic(http.ErrAbortHandler)
	}
}

// write sends an event at once. It splits a character of several bytes into two
// writes, which shows the error of a client that decodes each read on its own.
func write(w http.ResponseWriter, out *http.ResponseController, event []byte) error {
	if i := bytes.IndexFunc(event, func(r rune) bool { return r >= utf8.RuneSelf }); i >= 0 {
		if _, err := w.Write(event[:i+1]); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		event = event[i+1:]
	}
	if _, err := w.Write(event); err != nil {
		return err
	}
	return out.Flush()
}

// unixNow returns the time for OpenAI's objects.
func unixNow() int64 { return time.Now().Unix() }
