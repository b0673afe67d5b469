package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// Variables that make this program a server.
const (
	kindVariable     = "MCP_TEST_KIND"
	revisionVariable = "MCP_TEST_REVISION" // the only one that the server speaks
	endVariable      = "MCP_TEST_END"      // the method at which the server ends
	witnessVariable  = "MCP_TEST_WITNESS"  // an address that the server tells what it does; for spawn a file
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(kindVariable); kind != "" {
		serve(kind)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// serve is the process of a server.
func serve(kind string) {
	switch kind {
	case "tools":
		if err := newToolServer().Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	case "silent":
		_, _ = bufio.NewReader(os.Stdin).ReadString(0) // to the end of it
	case "dies":
		fmt.Fprintln(os.Stderr, "cannot open the box of", os.Getenv("BOX_SECRET"))
		os.Exit(3)
	case "garbage":
		for {
			if _, err := fmt.Println("Welcome to the server!"); err != nil {
				return
			}
		}
	case "endless line":
		for {
			if _, err := fmt.Print(strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	case "old", "old and strict", "greeting", "ends", "deaf", "flood", "requests", "eager", "unsteady", "swap":
		serveByHand(kind)
	}
}

// floodRounds is how often a flooding server says everything that it may say by
// itself.
const floodRounds = 5_000

// serveByHand speaks the older revision without the library.
func serveByHand(kind string) {
	out := bufio.NewWriter(os.Stdout)
	say := func(format string, args ...any) {
		fmt.Fprintf(out, format+"\n", args...)
		if out.Flush() != nil {
			os.Exit(0)
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	refused, lists := 0, 0
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Error  *struct {
				Code int `json:"code"`
			} `json:"error"`
			Params struct {
				Meta struct {
					Token string `json:"progressToken"`
				} `json:"_meta"`
			} `json:"params"`
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			os.Exit(4)
		}
		if kind == "ends" && m.Method == os.Getenv(endVariable) {
			os.Exit(6)
		}
		switch m.Method {
		case "server/discover":
			if kind == "old and strict" {
				os.Exit(5)
			}
			if kind != "old" { // which does not know it and says nothing
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
			}
		case "initialize":
			if kind == "greeting" {
				say("Welcome!\n\n{\"level\":\"info\"}\nStarting.")
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"hand","version":"1"}}}`, m.ID)
		case "tools/list":
			if lists++; kind == "unsteady" && lists == 2 {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not now"}}`, m.ID)
				continue
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"go","description":"%d","inputSchema":{"type":"object"}}]}}`, m.ID, lists)
			if kind == "eager" || kind == "unsteady" && lists == 1 {
				say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			}
		case "tools/call":
			switch kind {
			case "eager":
				say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"listed %d times"}]}}`, m.ID, lists)
				continue
			case "deaf":
				for i := range 200_000 {
					fmt.Fprintf(out, `{"jsonrpc":"2.0","id":"p%d","method":"ping"}`+"\n", i)
				}
				out.Flush()
				time.Sleep(time.Hour) // it is ended before
			case "flood":
				for i := range floodRounds {
					fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}`+"\n", i)
					fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%q,"progress":%d}}`+"\n", m.Params.Meta.Token, i)
					fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				}
			case "swap":
				for i := range maxStatuses + 10 {
					say(`{"jsonrpc":"2.0","id":"s%d","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`, i)
					lines.Scan() // the refusal
				}
				say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			case "requests":
				for i := range 1000 {
					say(`{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":{"mode":"form","message":"%d?"}}`, i, i)
				}
				for refused < 1000 && lines.Scan() {
					if strings.Contains(lines.Text(), strconv.Itoa(codeBusy)) || strings.Contains(lines.Text(), `"cancel"`) {
						refused++
					}
				}
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"went, %d refused"}]}}`, m.ID, refused)
		}
	}
}

type noArgs struct{}

// newToolServer returns a server with a tool for every occasion.
func newToolServer() *sdk.Server {
	o := &sdk.ServerOptions{}
	if revision := os.Getenv(revisionVariable); revision != "" {
		o.SupportedProtocolVersions = []string{revision}
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "tools", Version: "1"}, o)
	if count, err := strconv.Atoi(os.Getenv("MCP_TEST_TOOLS")); err == nil {
		for i := range count {
			addText(s, fmt.Sprintf("tool.%03d", i), func(context.Context, *sdk.CallToolRequest) (string, error) { return fmt.Sprint(i), nil })
		}
	}
	sdk.AddTool(s, &sdk.Tool{Name: "echo", Title: "Echo", Description: "Says it again.", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *sdk.CallToolRequest, in struct {
			Text string `json:"text"`
		}) (*sdk.CallToolResult, struct {
			Said string `json:"said"`
		}, error) {
			return nil, struct {
				Said string `json:"said"`
			}{in.Text}, nil
		})
	addText(s, "environment", func(context.Context, *sdk.CallToolRequest) (string, error) {
		dir, err := os.Getwd()
		return dir + "\n" + strings.Join(os.Environ(), "\n"), err
	})
	addText(s, "crash", func(context.Context, *sdk.CallToolRequest) (string, error) {
		fmt.Fprintln(os.Stderr, "out of paper")
		os.Exit(7)
		return "", nil
	})
	addText(s, "fail", func(context.Context, *sdk.CallToolRequest) (string, error) { return "", fmt.Errorf("no luck") })
	addText(s, "hang", func(ctx context.Context, _ *sdk.CallToolRequest) (string, error) {
		note("hangs")
		<-ctx.Done()
		note("cancelled")
		return "", ctx.Err()
	})
	addText(s, "spawn", func(context.Context, *sdk.CallToolRequest) (string, error) {
		return "spawned", exec.Command("sh", "-c", "exec 3>\"$"+witnessVariable+"\"; echo >&3; exec sleep 1000").Start()
	})
	addText(s, "grow", func(context.Context, *sdk.CallToolRequest) (string, error) {
		addText(s, "new", func(context.Context, *sdk.CallToolRequest) (string, error) { return "new", nil })
		return "grown", nil
	})
	s.AddTool(&sdk.Tool{Name: "tell", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: os.Getenv("BOX_SECRET") + " and API_KEY=another do not fit"}
	})
	called := false
	s.AddTool(&sdk.Tool{Name: "closing", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if called {
			return textResult("called before"), nil
		}
		called = true
		return nil, &jsonrpc.Error{Code: -32004, Message: "server is closing"}
	})
	addQuestions(s)
	return s
}

// addQuestions adds the tools that ask for something.
func addQuestions(s *sdk.Server) {
	form := map[string]any{
		"type": "object", "required": []string{"name"},
		"properties": map[string]any{
			"name": map[string]any{"type": "string"}, "age": map[string]any{"type": "integer", "minimum": 0},
		},
	}
	told := func(res *sdk.ElicitResult) string { return fmt.Sprint(res.Action, " ", res.Content) }
	addText(s, "ask", func(ctx context.Context, req *sdk.CallToolRequest) (string, error) {
		res, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Who are you?", RequestedSchema: form})
		if err != nil {
			return "", err
		}
		return told(res), nil
	})
	addText(s, "ask-briefly", func(ctx context.Context, req *sdk.CallToolRequest) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Quick!", RequestedSchema: form})
		return fmt.Sprint("stopped waiting: ", err), nil
	})
	addText(s, "visit", func(ctx context.Context, req *sdk.CallToolRequest) (string, error) {
		res, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Mode: "url", Message: "Sign in", URL: "https://sign.example/in", ElicitationID: "e1"})
		if err != nil {
			return "", err
		}
		return told(res), nil
	})
	addText(s, "roots", func(ctx context.Context, req *sdk.CallToolRequest) (string, error) {
		//lint:ignore SA1019 servers of the older revisions use it
		res, err := req.Session.ListRoots(ctx, nil)
		if err != nil {
			return "", err
		}
		return res.Roots[0].URI, nil
	})
	addText(s, "sample", func(ctx context.Context, req *sdk.CallToolRequest) (string, error) {
		//lint:ignore SA1019 servers of the older revisions use it
		_, err := req.Session.CreateMessage(ctx, &sdk.CreateMessageParams{MaxTokens: 1, Messages: []*sdk.SamplingMessage{}})
		return "", err
	})
	visited := false
	s.AddTool(&sdk.Tool{Name: "errand", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if visited {
			return textResult("welcome back"), nil
		}
		visited = true
		return nil, sdk.URLElicitationRequiredError([]*sdk.ElicitParams{{Mode: "url", Message: "Pay", URL: "https://pay.example/", ElicitationID: "e2"}})
	})
	s.AddTool(&sdk.Tool{Name: "rounds", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		first, ok := req.Params.InputResponses["first"].(*sdk.ElicitResult)
		if !ok {
			return &sdk.CallToolResult{
				InputRequests: sdk.InputRequestMap{"first": &sdk.ElicitParams{Message: "Who are you?", RequestedSchema: form}}, RequestState: "one",
			}, nil
		}
		return textResult(req.Params.RequestState + " " + told(first)), nil
	})
	s.AddTool(&sdk.Tool{Name: "two-at-once", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if len(req.Params.InputResponses) == 0 {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{
				"a": &sdk.ElicitParams{Message: "A?"}, "b": &sdk.ElicitParams{Message: "B?"},
			}}, nil
		}
		a, b := req.Params.InputResponses["a"].(*sdk.ElicitResult), req.Params.InputResponses["b"].(*sdk.ElicitResult)
		return textResult(told(a) + told(b)), nil
	})
}

func addText(s *sdk.Server, name string, do func(context.Context, *sdk.CallToolRequest) (string, error)) {
	sdk.AddTool(s, &sdk.Tool{Name: name}, func(ctx context.Context, req *sdk.CallToolRequest, _ noArgs) (*sdk.CallToolResult, any, error) {
		text, err := do(ctx, req)
		return textResult(text), nil, err
	})
}

func textResult(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// note tells the test a line.
func note(line string) {
	conn, err := net.Dial("tcp", os.Getenv(witnessVariable))
	if err != nil {
		return // no test wants to know
	}
	defer conn.Close()
	fmt.Fprintln(conn, line)
}

// A witness is where servers tell a test what they do.
type witness struct {
	address string
	lines   chan string
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	hosttest.Must(t, err)
	w := &witness{address: listener.Addr().String(), lines: make(chan string, 16)}
	over := make(chan struct{})
	go func() { // ends with the listener
		defer close(over)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(conn)
			_ = conn.Close()
			w.lines <- strings.TrimSpace(string(text))
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-over
	})
	return w
}

// saw returns once a server has told the line.
func (w *witness) saw(t *testing.T, line string) {
	t.Helper()
	late := time.After(hosttest.Patience)
	for {
		select {
		case got := <-w.lines:
			if got == line {
				return
			}
		case <-late:
			t.Errorf("got no line %q, want it", line)
			return
		}
	}
}
