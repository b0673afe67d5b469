// Package elicit is the form that questions of MCP servers and of ACP agents have
// for clients, and their answers: what the wire calls mcp_elicitation.
//
// It promises that a question which is put can be shown, as it is bounded and leads
// nowhere but to the web, and that an answer which is accepted fits the form. It
// does not put questions.
package elicit
