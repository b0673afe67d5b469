// Package mcp connects agents to servers that speak the Model Context Protocol:
// programs on their standard streams, and addresses of the streamable HTTP
// transport. Both of its generations are spoken: the one with sessions, up to
// 2025-11-25, and the one without, 2026-07-28.
//
// It promises that a server which fails, floods or says nothing costs its own
// tools and nothing else; that its failure is said in the open and it is tried
// again when tools are wanted or called; that what a server asks of people becomes one kind of
// question whatever the shape it came in, which is never answered for them; and
// that nothing a server started is left when the set of servers is closed. A
// program gets no credential of ours that its configuration does not give it.
//
// It promises nothing about what tools do: whether a call is to be approved is
// the agent's business. Prompts and resources of servers are not offered, and
// sampling is refused.
package mcp
