// Command embed is a program with a Maestro server of its own, whose agent is a function.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/seed-028515a8/maestro/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	srv, err := server.New(server.Options{
		Token: os.Getenv("EMBED_TOKEN"), StateDir: "embed-state", Page: true,
		NewAgent: server.AgentFunc("birthdays", birthday),
	})
	if err != nil {
		log.Fatal(err)
	}
	web := &http.Server{Addr: "127.0.0.1:8787", Handler: srv}
	go func() { // ends when web is closed
		log.Printf("in a browser: http://%s%s", web.Addr, srv.LoginPath())
		if err := web.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.Print(err)
		}
		stop()
	}()
	<-ctx.Done()
	if err := srv.Close(context.Background()); err != nil {
		log.Print(err)
	}
	_ = web.Close() // all clients have left
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
