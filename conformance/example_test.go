package conformance_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/server"
)

// A test that judges a server. This one is embedded; any other is judged the same way, by
// its address.
func Example() {
	const token = "a-token-that-only-this-example-has"
	srv, err := server.New(server.Options{Token: token, Agent: "conformance", Workspace: os.TempDir()})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(srv)
	defer web.Close()

	report, err := conformance.Maestro().Run(context.Background(), conformance.Config{
		Target: strings.Replace(web.URL, "http", "ws", 1), Token: token,
		Filter: regexp.MustCompile(`^handshake/(hello-ok|default-role)$`),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range report.Results {
		fmt.Println(r.Outcome, r.Name)
		if r.Failure != nil {
			fmt.Println(r.Failure.Rule, r.Failure.Message)
		}
	}
	if err := srv.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// pass handshake/hello-ok
	// pass handshake/default-role
}
