package server_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/server"
)

// A program with a server of its own and a client of that server. The agent asks before it
// uses a tool.
func Example() {
	const token = "a-token-that-only-this-example-has"
	srv, err := server.New(server.Options{Token: token, NewAgent: server.AgentFunc("birthdays", birthday)})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(srv) // or http.ListenAndServe("127.0.0.1:8787", srv)
	defer web.Close()

	talk(context.Background(), web.URL, token)

	if err := srv.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// calendar {"name":"Ann"} It reads your calendar
	// Ann was born on May 4.
}

// birthday answers one prompt, the name of a person.
func birthday(ctx context.Context, r *server.Run) error {
	day, err := r.Call(ctx, "calendar", map[string]string{"name": r.Content}, "It reads your calendar",
		func(context.Context) (string, error) { return "May 4", nil })
	if err != nil {
		return err
	}
	return r.Say(ctx, r.Content+" was born on "+day+".")
}

// talk is a client: it prompts, allows what the agent asks, and prints the answer.
func talk(ctx context.Context, url, token string) {
	c, err := client.Dial(ctx, url, client.WithToken(token), client.WithHello(contracts.Hello{
		Role:         contracts.RoleController,
		Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestApproval}},
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(false)
	if _, err := c.Prompt(ctx, "Ann"); err != nil {
		log.Fatal(err)
	}
	for u, err := range c.Updates(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch e := u.Event.(type) {
		case *contracts.ServerRequest:
			fmt.Println(e.Tool, string(e.Args), e.Reason)
			if _, err := c.Approve(ctx, e.RequestID, ""); err != nil {
				log.Fatal(err)
			}
		case *contracts.ResponseChunk:
			fmt.Print(e.Content)
		case *contracts.ResponseEnd:
			fmt.Println()
			return
		}
	}
}

// The users of a program that has its own way to know who they are. Each team has sessions
// of its own, and guests only watch.
func ExampleOptions_authenticate() {
	users := map[string]contracts.Principal{
		"ann": {ID: "ann", Name: "Ann", Scope: "team-1"},
		"bob": {ID: "bob", Name: "Bob", Scope: "team-1", Role: contracts.RoleViewer},
	}
	srv, err := server.New(server.Options{
		NewAgent: server.AgentFunc("birthdays", birthday),
		Authenticate: func(r *http.Request) (contracts.Principal, error) {
			name, password, _ := r.BasicAuth()
			if p, ok := users[name]; ok && password == "secret" {
				return p, nil
			}
			return contracts.Principal{}, errors.New("unknown user")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(srv)
	defer web.Close()

	for _, name := range []string{"ann", "bob", "eve"} {
		req, err := http.NewRequest("GET", web.URL+"/api/headless/whoami", nil)
		if err != nil {
			log.Fatal(err)
		}
		req.SetBasicAuth(name, "secret")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, res.StatusCode)
		_ = res.Body.Close() // nothing was read
	}
	if err := srv.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// ann 200
	// bob 200
	// eve 401
}

// A program that has routes of its own beside those of the server.
func Example_mount() {
	srv, err := server.New(server.Options{Token: "a-token-that-only-this-example-has", NewAgent: server.AgentFunc("birthdays", birthday)})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the program") })
	mux.Handle("/api/headless/", srv)
	mux.Handle("/login", srv)
	mux.Handle("/logout", srv)
	web := httptest.NewServer(mux)
	defer web.Close()

	for _, path := range []string{"/", "/api/headless/whoami"} {
		res, err := http.Get(web.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(path, res.StatusCode)
		_ = res.Body.Close() // nothing was read
	}
	if err := srv.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// / 200
	// /api/headless/whoami 401
}
