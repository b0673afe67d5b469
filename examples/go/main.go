// A chat with an agent: go run ./examples/go URL TOKEN-FILE
//
// A line is a prompt, or the answer to the open question. /take, /ask, /grant ID and /stop
// do what they say. The end of the input ends the program.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./examples/go URL TOKEN-FILE")
		os.Exit(2)
	}
	if err := chat(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, explain(err))
		os.Exit(1)
	}
}

func chat(ctx context.Context, server, tokenFile string) error {
	c, err := client.Dial(ctx, server,
		client.WithTokenFile(tokenFile),
		client.WithSession("main", true),
		client.WithRole(contracts.RoleController),
		client.WithTakeover(contracts.TakeoverLater),
		client.WithHello(contracts.Hello{
			ClientInfo:   &contracts.ClientInfo{Name: "go-chat"},
			Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestApproval, contracts.RequestUserInput}},
		}),
		client.WithPeople("Ann"),
		client.WithHistory(),
	)
	if err != nil {
		return err
	}
	defer c.Close(false)

	go func() { // ends with the input, at the latest with the program
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			if err := act(ctx, c, in.Text()); err != nil {
				fmt.Println("-- refused:", err)
			}
		}
		c.Close(false) // ends the updates
	}()

	for u, err := range c.Updates(ctx) {
		if err != nil {
			return err
		}
		show(u)
	}
	return nil
}

// act does what a line says.
func act(ctx context.Context, c *client.Client, line string) (err error) {
	command, id, _ := strings.Cut(line, " ")
	pending := c.State().PendingRequests
	switch {
	case command == "/take":
		_, err = c.TakeControl(ctx)
	case command == "/ask":
		_, err = c.AskControl(ctx, "")
	case command == "/grant":
		_, err = c.GrantControl(ctx, id)
	case command == "/stop":
		_, err = c.Interrupt(ctx)
	case len(pending) == 0:
		_, err = c.Prompt(ctx, line)
	default:
		err = answer(ctx, c, pending[0], line)
	}
	return err
}

// answer answers a question. The client adds the digest of what it was shown.
func answer(ctx context.Context, c *client.Client, q contracts.PendingRequest, line string) (err error) {
	switch {
	case q.Kind == contracts.RequestApproval && line == "y":
		_, err = c.Approve(ctx, q.ID, "")
	case q.Kind == contracts.RequestApproval:
		_, err = c.Deny(ctx, q.ID, line)
	default:
		_, err = c.Send(ctx, &contracts.ServerRequestResponse{
			RequestID: q.ID, RequestType: q.Kind, Content: []contracts.ContentBlock{{Type: "text", Text: line}},
		})
	}
	return err
}

// show prints an update.
func show(u client.Update) {
	switch u.Kind {
	case client.KindConnected:
		fmt.Println("-- connected, in control:", u.Attached.ControllerLeaseGranted)
	case client.KindDisconnected:
		fmt.Println("-- connection lost, trying again:", u.Err)
	case client.KindReset:
		fmt.Println("-- earlier events are gone; open questions:", len(u.Snapshot.State.PendingRequests))
	case client.KindControl:
		control(u.Control)
	case client.KindEvent:
		event(u.Event)
	}
}

func control(frame contracts.Frame) {
	switch f := frame.(type) {
	case *contracts.LeaseChange:
		fmt.Println("-- in control:", f.Granted, f.Reason)
	case *contracts.ControlRequest:
		fmt.Println("-- somebody asks for control: /grant", f.ConnectionID)
	}
}

func event(e contracts.Event) {
	switch e := e.(type) {
	case *contracts.PromptAccepted:
		fmt.Println(">", e.Content)
	case *contracts.ResponseChunk:
		fmt.Print(e.Content)
	case *contracts.ResponseEnd:
		fmt.Println()
	case *contracts.ToolOutput:
		fmt.Print(e.Content)
	case *contracts.RequestShown:
		fmt.Println("\n?", e.Display)
	case *contracts.ServerRequestResolved:
		fmt.Println("--", e.Resolution)
	case *contracts.ErrorEvent:
		fmt.Println("--", e.Message)
	}
}

// explain says what to do about the end of the client.
func explain(err error) error {
	end, ok := errors.AsType[*client.CloseError](err)
	switch {
	case ok && end.Reason == contracts.CodeUnauthenticated:
		return fmt.Errorf("log in again, the token is not valid any more: %w", err)
	case ok && end.Reason == contracts.CodeSuperseded:
		return fmt.Errorf("another program has continued this connection: %w", err)
	}
	return err
}
