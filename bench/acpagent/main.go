// Command acpagent is an agent that speaks the Agent Client Protocol on its
// standard streams and measures nothing itself: prompted with "COUNT RATE" it
// says so many messages at that rate, each its number and the time at which it
// was written. It is one of the programs of bench.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "acpagent:", err)
		os.Exit(1)
	}
}

// A request is what a client asks. Fields that an agent of one session does not
// need are left out.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
		Prompt    []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	} `json:"params"`
}

// serve answers requests one after the other until in ends.
func serve(in io.Reader, out io.Writer) error {
	requests := json.NewDecoder(bufio.NewReader(in))
	for {
		var r request
		if err := requests.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if r.ID == nil {
			continue // there is nothing to cancel
		}
		result := `{}`
		switch r.Method {
		case "initialize":
			result = `{"protocolVersion":1,"agentCapabilities":{}}`
		case "session/new":
			result = `{"sessionId":"bench"}`
		case "session/prompt":
			if err := speak(out, r); err != nil {
				return err
			}
			result = `{"stopReason":"end_turn"}`
		}
		if _, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result); err != nil {
			return err
		}
	}
}

// speak says what a prompt wants to hear. A message that is late is not made up
// for by the next ones.
func speak(out io.Writer, r request) error {
	var count, rate int
	if len(r.Params.Prompt) == 0 {
		return fmt.Errorf("the prompt is empty")
	}
	if _, err := fmt.Sscan(r.Params.Prompt[0].Text, &count, &rate); err != nil || rate < 1 {
		return fmt.Errorf("got the prompt %q, want a count and a rate", r.Params.Prompt[0].Text)
	}
	pace := time.NewTicker(time.Second / time.Duration(rate))
	defer pace.Stop()
	for n := range count {
		<-pace.C
		const update = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d:%d;"}}}}` + "\n"
		if _, err := fmt.Fprintf(out, update, r.Params.SessionID, n, time.Now().UnixNano()); err != nil {
			return err
		}
	}
	return nil
}
