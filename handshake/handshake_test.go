package handshake_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

const (
	viewer     = contracts.RoleViewer
	controller = contracts.RoleController
)

func TestRoleOfAHello(t *testing.T) { // R25, R26
	const refused = contracts.Role("refused")
	tests := []struct {
		name  string
		asked contracts.Role
		offer handshake.Offer
		want  contracts.Role
	}{
		{"nothing said", "", handshake.Offer{}, controller},
		{"default of the transport", "", handshake.Offer{Default: viewer}, viewer},
		{"asked against the default", controller, handshake.Offer{Default: viewer}, controller},
		{"asked for viewer", viewer, handshake.Offer{}, viewer},
		{"established kept", "", handshake.Offer{Established: viewer, Default: controller}, viewer},
		{"established repeated", viewer, handshake.Offer{Established: viewer}, viewer},
		{"established changed", controller, handshake.Offer{Established: viewer}, refused},
		{"established changed downward", viewer, handshake.Offer{Established: controller}, refused},
		{"fixed kept", "", handshake.Offer{Fixed: viewer, Default: controller}, viewer},
		{"fixed repeated", controller, handshake.Offer{Fixed: controller}, controller},
		{"fixed contradicted", controller, handshake.Offer{Fixed: viewer}, refused},
		{"fixed and established", "", handshake.Offer{Fixed: viewer, Established: viewer}, viewer},
		{"fixed against established", "", handshake.Offer{Fixed: viewer, Established: controller}, refused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := handshake.Negotiate(&contracts.Hello{Role: tt.asked}, tt.offer)
			if tt.want == refused {
				wantError(t, err, contracts.CodeRoleConflict, "headless connection role cannot change after hello")
				return
			}
			if err != nil || got.Role != tt.want {
				t.Errorf("role: got %q, %v, want %q", got.Role, err, tt.want)
			}
		})
	}
}

func wantError(t *testing.T, err error, code contracts.Code, text string) {
	t.Helper()
	got, ok := errors.AsType[*contracts.Error](err)
	if !ok {
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
	if got.Code != code || got.Message != text || got.Type != contracts.ErrorProtocol {
		t.Errorf("got %s %q of type %s, want %s %q of type protocol", got.Code, got.Message, got.Type, code, text)
	}
}

func TestViewerCannotOfferToAnswer(t *testing.T) { // R27
	type kinds []contracts.RequestType
	tests := []struct {
		name string
		list kinds
		want string // the type in the refusal; empty if accepted
	}{
		{"nothing", nil, ""},
		{"what gains it nothing", kinds{"approval", "client_tool"}, ""},
		{"elicitation", kinds{"approval", "mcp_elicitation"}, "mcp_elicitation"},
		{"user input", kinds{"user_input"}, "user_input"},
		{"retry", kinds{"tool_retry"}, "tool_retry"},
		{"the first tested, not the first listed", kinds{"tool_retry", "user_input", "mcp_elicitation"}, "mcp_elicitation"},
		{"the second tested", kinds{"tool_retry", "user_input"}, "user_input"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hello := &contracts.Hello{Role: viewer, Capabilities: &contracts.Capabilities{ServerRequests: tt.list}}
			_, err := handshake.Negotiate(hello, handshake.Offer{})
			if tt.want != "" {
				wantError(t, err, contracts.CodeBadRequest, "viewer headless connections cannot negotiate "+tt.want+" requests")
			} else if err != nil {
				t.Errorf("got %v, want no error", err)
			}
			hello.Role = controller
			if _, err := handshake.Negotiate(hello, handshake.Offer{}); err != nil {
				t.Errorf("the same from a controller: got %v, want no error", err)
			}
		})
	}
}

func TestRoleIsCheckedBeforeCapabilities(t *testing.T) { // section 3.1, checks 1 and 2
	hello := &contracts.Hello{Role: viewer, Capabilities: &contracts.Capabilities{
		ServerRequests: []contracts.RequestType{contracts.RequestUserInput},
	}}
	_, err := handshake.Negotiate(hello, handshake.Offer{Established: controller})
	wantError(t, err, contracts.CodeRoleConflict, "headless connection role cannot change after hello")
}

func TestRoleThatWasNotAskedForIsChecked(t *testing.T) { // R27 is about the effective role
	hello := &contracts.Hello{Capabilities: &contracts.Capabilities{
		ServerRequests: []contracts.RequestType{contracts.RequestUserInput},
	}}
	for _, offer := range []handshake.Offer{{Established: viewer}, {Fixed: viewer}, {Default: viewer}} {
		_, err := handshake.Negotiate(hello, offer)
		wantError(t, err, contracts.CodeBadRequest, "viewer headless connections cannot negotiate user_input requests")
	}
}

func TestVersionMismatchIsNoted(t *testing.T) { // R24
	for version, want := range map[string]bool{"": false, contracts.ProtocolVersion: false, "2025-01-01": true} {
		got, err := handshake.Negotiate(&contracts.Hello{ProtocolVersion: version}, handshake.Offer{})
		if err != nil || got.Mismatch != want || got.ProtocolVersion != version {
			t.Errorf("version %q: got %q, mismatch %t, %v, want mismatch %t", version, got.ProtocolVersion, got.Mismatch, err, want)
		}
	}
}

func TestEchoTellsAbsentFromEmptyCapabilities(t *testing.T) { // R22, R29
	absent, _ := handshake.Negotiate(&contracts.Hello{}, handshake.Offer{})
	if got := absent.Echo(); got != nil {
		t.Errorf("no capabilities: got echo %+v, want none", got)
	}
	empty, _ := handshake.Negotiate(&contracts.Hello{Capabilities: &contracts.Capabilities{}}, handshake.Offer{})
	if got := empty.Echo(); got == nil || !reflect.DeepEqual(*got, contracts.Capabilities{}) {
		t.Errorf("empty capabilities: got echo %+v, want them back", got)
	}
}

func TestOptOutsAreListedOnceInTheirOrder(t *testing.T) { // R12
	hello := &contracts.Hello{OptOutNotifications: []contracts.Notification{
		contracts.NotifyStatus, contracts.NotifyCompaction, contracts.NotifyStatus,
	}}
	got, err := handshake.Negotiate(hello, handshake.Offer{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []contracts.Notification{contracts.NotifyStatus, contracts.NotifyCompaction}; !slices.Equal(got.OptOuts, want) {
		t.Errorf("opt-outs: got %v, want %v", got.OptOuts, want)
	}
}

func TestRightsFollowRoleAndCapabilities(t *testing.T) {
	all := contracts.Capabilities{
		ServerRequests:    []contracts.RequestType{contracts.RequestApproval, contracts.RequestClientTool},
		UtilityOperations: []contracts.UtilityOperation{contracts.OperationFileRead},
		RawAgentEvents:    true,
	}
	tests := []struct {
		name                                    string
		terms                                   handshake.Terms
		approval, clientTool, retry, read, exec bool
	}{
		{"no hello", handshake.Terms{}, false, false, false, false, false},
		{"bare controller", handshake.Terms{Role: controller}, true, false, false, false, false},
		{"able controller", handshake.Terms{Role: controller, Capabilities: all}, true, true, false, true, false},
		{"able viewer", handshake.Terms{Role: viewer, Capabilities: all}, false, false, false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []struct {
				what      string
				got, want bool
			}{
				{"answer an approval", tt.terms.CanAnswer(contracts.RequestApproval), tt.approval},
				{"answer a client tool", tt.terms.CanAnswer(contracts.RequestClientTool), tt.clientTool},
				{"answer a retry", tt.terms.CanAnswer(contracts.RequestToolRetry), tt.retry},
				{"read a file", tt.terms.CanUse(contracts.OperationFileRead), tt.read},
				{"run a command", tt.terms.CanUse(contracts.OperationCommandExec), tt.exec},
				{"see raw events", tt.terms.RawEvents(), tt.terms.Capabilities.RawAgentEvents}, // R32
			} {
				if r.got != r.want {
					t.Errorf("may %s: got %t, want %t", r.what, r.got, r.want)
				}
			}
		})
	}
}

func TestEmptyHelloIsAnImplicitController(t *testing.T) { // section 3.1
	got, err := handshake.Negotiate(&contracts.Hello{}, handshake.Offer{})
	if want := (handshake.Terms{Role: controller}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// hello draws a hello as a client may send it, with duplicates where the wire
// allows them.
func hello(t *rapid.T) *contracts.Hello {
	h := &contracts.Hello{
		Role:            rapid.SampledFrom([]contracts.Role{"", viewer, controller}).Draw(t, "role"),
		ProtocolVersion: rapid.SampledFrom([]string{"", contracts.ProtocolVersion, "1999-12-31"}).Draw(t, "version"),
		OptOutNotifications: rapid.SliceOf(rapid.SampledFrom([]contracts.Notification{
			contracts.NotifyStatus, contracts.NotifyHeartbeat, contracts.NotifyConnectionInfo, contracts.NotifyCompaction,
		})).Draw(t, "opt-outs"),
	}
	if rapid.Bool().Draw(t, "capabilities") {
		h.Capabilities = &contracts.Capabilities{
			ServerRequests: rapid.SliceOfDistinct(rapid.SampledFrom(contracts.RequestTypes()), rapid.ID).Draw(t, "requests"),
			RawAgentEvents: rapid.Bool().Draw(t, "raw"),
		}
	}
	if rapid.Bool().Draw(t, "info") {
		h.ClientInfo = &contracts.ClientInfo{Name: rapid.String().Draw(t, "name")}
	}
	return h
}

// TestNegotiatingAgainChangesNothing: whatever was accepted is accepted again
// on the connection it established, with the same terms, and so is what
// hello_ok echoed.
func TestNegotiatingAgainChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hello(t)
		roles := rapid.SampledFrom([]contracts.Role{"", viewer, controller})
		offer := handshake.Offer{Fixed: roles.Draw(t, "fixed"), Default: roles.Draw(t, "default")}
		first, err := handshake.Negotiate(h, offer)
		if err != nil {
			if _, ok := errors.AsType[*contracts.Error](err); !ok {
				t.Fatalf("refusal without a code: %v", err)
			}
			return
		}
		offer.Established = first.Role
		echo := &contracts.Hello{
			ProtocolVersion: first.ProtocolVersion, ClientInfo: first.ClientInfo, Capabilities: first.Echo(),
			Role: first.Role, OptOutNotifications: first.OptOuts,
		}
		for name, again := range map[string]*contracts.Hello{"the same hello": h, "the echo": echo} {
			second, err := handshake.Negotiate(again, offer)
			if err != nil || !reflect.DeepEqual(second, first) {
				t.Fatalf("%s: got %+v, %v, want %+v", name, second, err, first)
			}
		}
		for i, n := range first.OptOuts {
			if slices.Contains(first.OptOuts[:i], n) {
				t.Fatalf("opt-outs: got %v, want each once", first.OptOuts)
			}
		}
		for _, n := range h.OptOutNotifications {
			if !slices.Contains(first.OptOuts, n) {
				t.Fatalf("opt-outs: got %v, want %s among them", first.OptOuts, n)
			}
		}
	})
}

func TestLabelsAndListsAreBounded(t *testing.T) {
	long := string(make([]byte, contracts.MaxLabelBytes+1))
	for _, hello := range []*contracts.Hello{
		{ProtocolVersion: long},
		{ClientInfo: &contracts.ClientInfo{Name: long}},
		{ClientInfo: &contracts.ClientInfo{Name: "x", Version: long}},
	} {
		if _, err := handshake.Negotiate(hello, handshake.Offer{}); !errors.Is(err, &contracts.Error{Code: contracts.CodeBadRequest}) {
			t.Errorf("got %v, want %s", err, contracts.CodeBadRequest)
		}
	}
	many := slices.Repeat([]contracts.RequestType{contracts.RequestApproval, contracts.RequestUserInput}, 1000)
	terms, err := handshake.Negotiate(&contracts.Hello{
		ProtocolVersion: long[1:], Capabilities: &contracts.Capabilities{ServerRequests: many},
	}, handshake.Offer{})
	if err != nil {
		t.Fatal(err)
	}
	if got := terms.Capabilities.ServerRequests; !slices.Equal(got, many[:2]) {
		t.Errorf("got %d types, want each once: %v", len(got), many[:2])
	}
}

func TestToolsOfClientsAreFitToBeOffered(t *testing.T) {
	schema := json.RawMessage(`{"type":"object"}`)
	able := &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestClientTool}}
	tool := func(name string) contracts.ClientTool { return contracts.ClientTool{Name: name, InputSchema: schema} }
	many := make([]contracts.ClientTool, contracts.MaxClientTools+1)
	for i := range many {
		many[i] = tool(fmt.Sprint("t", i))
	}
	for name, hello := range map[string]*contracts.Hello{
		"without the capability": {ClientTools: []contracts.ClientTool{tool("a")}},
		"no name":                {Capabilities: able, ClientTools: []contracts.ClientTool{tool("")}},
		"an odd name":            {Capabilities: able, ClientTools: []contracts.ClientTool{tool("a b")}},
		"a long name":            {Capabilities: able, ClientTools: []contracts.ClientTool{tool(strings.Repeat("a", 65))}},
		"one name twice":         {Capabilities: able, ClientTools: []contracts.ClientTool{tool("a"), tool("a")}},
		"no schema":              {Capabilities: able, ClientTools: []contracts.ClientTool{{Name: "a", InputSchema: json.RawMessage(`[]`)}}},
		"too many":               {Capabilities: able, ClientTools: many},
		"too large":              {Capabilities: able, ClientTools: []contracts.ClientTool{{Name: "a", Description: strings.Repeat("x", contracts.MaxClientToolBytes), InputSchema: schema}}},
	} {
		if _, err := handshake.Negotiate(hello, handshake.Offer{}); !errors.Is(err, &contracts.Error{Code: contracts.CodeBadRequest}) {
			t.Errorf("%s: got %v, want %s", name, err, contracts.CodeBadRequest)
		}
	}
	terms, err := handshake.Negotiate(&contracts.Hello{Capabilities: able, ClientTools: many[1:]}, handshake.Offer{})
	if err != nil || len(terms.ClientTools) != contracts.MaxClientTools {
		t.Errorf("got %d tools, %v; want %d", len(terms.ClientTools), err, contracts.MaxClientTools)
	}
}
