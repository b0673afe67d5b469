package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A viewer that prints what the agent says.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(greeter))
	defer server.Close()
	ctx := context.Background()

	c, err := client.Dial(ctx, server.URL, client.WithRole(contracts.RoleViewer), client.WithHistory())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(false)

	for u, err := range c.Updates(ctx) {
		if err != nil {
			fmt.Println(err)
			break
		}
		switch e := u.Event.(type) {
		case *contracts.ResponseChunk:
			fmt.Print(e.Content)
		case *contracts.ResponseEnd:
			fmt.Println()
		}
	}
	// Output:
	// Hello, world.
	// connection closed: 1000
}

// A program that denies every question of the inbox, and says who answered which.
func ExampleServer_FollowInbox() {
	httpServer := httptest.NewServer(asker())
	defer httpServer.Close()
	ctx := context.Background()

	server, err := client.NewServer(httpServer.URL, client.WithToken("secret"))
	if err != nil {
		log.Fatal(err)
	}
	for u, err := range server.FollowInbox(ctx) {
		if err != nil {
			fmt.Println(err)
			break
		}
		if u.Event == nil {
			fmt.Println("connection lost, again in", u.Retry, u.Err)
			continue
		}
		switch e := u.Event; e.Type {
		case "questions": // the whole list: forget the old one
			fmt.Println("open questions:", len(e.Inbox.Questions))
		case "question":
			fmt.Printf("%s asks: %s\n", e.Question.SessionTitle, e.Question.Display)
			no := contracts.InboxAnswer{Approved: new(false), Note: "not today", Digest: e.Question.Digest}
			if _, err := server.AnswerQuestion(ctx, e.Question.SessionID, e.Question.RequestID, no); err != nil {
				fmt.Println(err)
			}
		case "ended":
			fmt.Println(e.Ended.Resolution, "by", e.Ended.Author.Name)
			return
		}
	}
	// Output:
	// open questions: 0
	// Fix the parser asks: bash {"command":"rm -r build"}
	// denied by Ann
}

// asker is a server with one question.
func asker() http.Handler {
	answered := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/headless/inbox/events", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `data: {"type":"questions","inbox":{"questions":[]}}`, "\n\n")
		fmt.Fprint(w, `data: {"type":"question","question":{"session_id":"main","session_title":"Fix the parser","request_id":"q1",`+
			`"display":"bash {\"command\":\"rm -r build\"}","digest":"sha256:1f"}}`, "\n\n")
		w.(http.Flusher).Flush()
		<-answered
		fmt.Fprint(w, `data: {"type":"ended","ended":{"session_id":"main","request_id":"q1","resolution":"denied","author":{"name":"Ann"}}}`, "\n\n")
	})
	mux.HandleFunc("POST /api/headless/inbox/main/q1", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"session_id":"main","request_id":"q1","ended":true,"cursor":7}`)
		close(answered)
	})
	return mux
}

// greeter is a server whose session consists of one response.
func greeter(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{contracts.Subprotocol}})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	var hello any
	_ = wsjson.Read(r.Context(), conn, &hello)
	for _, frame := range []string{
		`{"type":"ws.attached","session_id":"s","connection_id":"c","connection_token":"t","subscription_id":"u","role":"viewer","controller_lease_granted":false,"controller_connection_id":null,"lease_expires_at":null,"heartbeat_interval_ms":15000,"epoch":"e","resume":"replay","limits":{"max_frame_bytes":1048576,"mailbox":1048576}}`,
		`{"type":"message","cursor":1,"message":{"type":"response_start","response_id":"r"}}`,
		`{"type":"message","cursor":2,"message":{"type":"response_chunk","response_id":"r","content":"Hello, ","is_thinking":false}}`,
		`{"type":"message","cursor":3,"message":{"type":"response_chunk","response_id":"r","content":"world.","is_thinking":false}}`,
		`{"type":"message","cursor":4,"message":{"type":"response_end","response_id":"r"}}`,
	} {
		_ = wsjson.Write(r.Context(), conn, json.RawMessage(frame))
	}
	_ = conn.Close(websocket.StatusNormalClosure, "")
}
