// Package mcp connects agents to servers of the Model Context Protocol:
// programs on their standard streams, and URLs of the streamable HTTP
// transport. It speaks both generations of the protocol: the one with sessions,
// up to 2025-11-25, and the one without, 2026-07-28.
//
// A server that fails, floods or is silent affects its own tools only. Clients
// are told of its failure, and it is tried again when tools are listed or
// called. Every question of a server, in whatever form, becomes an elicitation
// for clients; the package never answers it for them. When the set of servers
// is closed, no process that a server started is left. A program gets no
// credential of this server unless its configuration passes it.
//
// The agent decides whether a call needs approval. Prompts and resources of
// servers are not offered, and sampling is refused.
package mcp
