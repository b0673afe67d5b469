// Package elicit has the form for clients of questions by MCP servers and ACP
// agents, and of their answers: mcp_elicitation on the wire.
//
// A checked question is bounded, can be shown, and has no URL except http and
// https. An accepted answer fits the form. The package does not ask the
// questions.
package elicit
