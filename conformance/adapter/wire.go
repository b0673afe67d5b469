package main

// The published schemas. They are older than the protocol page: ready and
// hello_ok know neither executor_type nor server_capabilities.

// Vocabularies.
var (
	role        = word("viewer", "controller")
	requestType = word("approval", "client_tool", "mcp_elicitation", "user_input", "tool_retry")
	errorType   = word("transient", "fatal", "tool", "cancelled", "protocol")
	shellMode   = word("shell", "direct")
	terminal    = word("pipe", "pty")
	optOuts     = set("status", "heartbeat", "connection_info", "compaction")
)

// Parts of messages and of the state.
var (
	clientInfo   = closed(fields{"name": text}, fields{"version": text})
	capabilities = closed(nil, fields{
		"server_requests":    set("approval", "client_tool", "mcp_elicitation", "user_input", "tool_retry"),
		"utility_operations": set("command_exec", "file_search", "file_watch", "file_read"),
		"raw_agent_events":   boolean,
	})
	usage = closed(fields{
		"input_tokens": integer, "output_tokens": integer, "cache_read_tokens": integer, "cache_write_tokens": integer,
		"total_tokens": integer, "total_cost_usd": number, "model_id": text, "provider": text,
	}, nil)
	connectionState = closed(fields{
		"connection_id": text, "role": role, "subscription_count": integer, "attached_subscription_count": integer,
		"controller_lease_granted": boolean,
	}, fields{
		"client_protocol_version": text, "client_info": clientInfo, "capabilities": capabilities,
		"opt_out_notifications": optOuts, "lease_expires_at": orNull(text),
	})
	pendingEntry = closed(fields{"call_id": text, "tool": text, "args": anything},
		fields{"request_id": text, "display_name": text, "summary_label": text, "action_description": text})
	pendingRequest = closed(fields{
		"id": text, "kind": requestType, "status": word("pending"), "visibility": word("user"), "tool_call_id": text,
		"call_id": text, "tool_name": text, "tool": text, "args": anything, "source": word("local", "platform"),
	}, fields{
		"session_id": orNull(text), "request_id": text, "display_name": text, "summary_label": text,
		"action_description": text, "platform": anything,
	})
	activeCommand = closed(fields{"command_id": text, "command": text, "shell_mode": shellMode, "terminal_mode": terminal, "output": text},
		fields{"cwd": text, "pid": integer, "columns": integer, "rows": integer, "owner_connection_id": text})
	activeWatch = closed(fields{"watch_id": text, "root_dir": text, "debounce_ms": integer},
		fields{"include_patterns": list(text), "exclude_patterns": list(text), "owner_connection_id": text})
)

// initMessage is the message that last_init repeats.
var initMessage = typed(map[string]func(schema) schema{
	"init": kind(nil, fields{
		"system_prompt": text, "append_system_prompt": text,
		"thinking_level": word("off", "minimal", "low", "medium", "high", "ultra"),
		"approval_mode":  word("auto", "prompt", "fail"),
	}),
})

var state = closed(fields{
	"connection_count": integer, "subscriber_count": integer, "connections": list(connectionState),
	"pending_approvals": list(pendingEntry), "pending_client_tools": list(pendingEntry),
	"pending_mcp_elicitations": list(pendingEntry), "pending_user_inputs": list(pendingEntry),
	"pending_tool_retries": list(pendingEntry), "tracked_tools": list(pendingEntry),
	"active_tools":            list(closed(fields{"call_id": text, "tool": text, "output": text}, nil)),
	"active_utility_commands": list(activeCommand), "active_file_watches": list(activeWatch),
	"is_ready": boolean, "is_responding": boolean,
}, fields{
	"protocol_version": text, "client_protocol_version": text, "client_info": clientInfo, "capabilities": capabilities,
	"opt_out_notifications": optOuts, "connection_role": role, "controller_subscription_id": orNull(text),
	"controller_connection_id": orNull(text), "model": text, "provider": text, "session_id": orNull(text), "cwd": text,
	"git_branch":       orNull(text),
	"current_response": closed(fields{"response_id": text, "text": text, "thinking": text}, fields{"usage": usage}),
	"pending_requests": list(pendingRequest), "last_error": text, "last_error_type": errorType, "last_status": text,
	"last_response_duration_ms": number, "last_ttft_ms": number,
})

var snapshot = closed(fields{
	"protocolVersion": text, "session_id": text, "cursor": integer, "last_init": orNull(initMessage), "state": state,
}, nil)

// message is any of the messages from the runtime.
var message = typed(map[string]func(schema) schema{
	"hello_ok": kind(fields{"protocol_version": text}, fields{
		"connection_id": text, "client_protocol_version": text, "client_info": clientInfo, "capabilities": capabilities,
		"opt_out_notifications": optOuts, "role": role, "controller_connection_id": orNull(text), "lease_expires_at": orNull(text),
	}),
	"ready":        kind(fields{"protocol_version": text, "model": text, "provider": text, "session_id": orNull(text)}, nil),
	"session_info": kind(fields{"session_id": orNull(text), "cwd": text, "git_branch": orNull(text)}, nil),
	"connection_info": kind(nil, fields{
		"connection_id": text, "client_protocol_version": text, "client_info": clientInfo, "capabilities": capabilities,
		"opt_out_notifications": optOuts, "role": role, "connection_count": integer, "controller_connection_id": orNull(text),
		"lease_expires_at": orNull(text), "connections": list(connectionState),
	}),
	"compaction": kind(fields{
		"summary": text, "first_kept_entry_index": integer, "tokens_before": integer, "auto": boolean, "timestamp": text,
	}, fields{"custom_instructions": text}),
	"response_start": kind(fields{"response_id": text}, nil),
	"response_chunk": kind(fields{"response_id": text, "content": text, "is_thinking": boolean}, nil),
	"response_end": kind(fields{
		"response_id": text, "usage": usage, "duration_ms": integer,
		"tools_summary": closed(fields{"tools_used": list(text), "calls_succeeded": integer, "calls_failed": integer},
			fields{"summary_labels": list(text)}),
	}, fields{"ttft_ms": integer}),
	"tool_call":           kind(fields{"call_id": text, "tool": text, "args": anything, "requires_approval": boolean}, nil),
	"tool_start":          kind(fields{"call_id": text}, nil),
	"tool_output":         kind(fields{"call_id": text, "content": text}, nil),
	"tool_end":            kind(fields{"call_id": text, "success": boolean}, fields{"error_code": text, "approval_request_id": text, "governed_outcome": text}),
	"client_tool_request": kind(fields{"call_id": text, "tool": text, "args": anything}, nil),
	"server_request": kind(fields{
		"request_id": text, "request_type": requestType, "call_id": text, "tool": text, "args": anything, "reason": text,
	}, fields{"display_name": text, "summary_label": text, "action_description": text}),
	"server_request_resolved": kind(fields{
		"request_id": text, "request_type": requestType, "call_id": text,
		"resolution":  word("approved", "denied", "completed", "failed", "answered", "retried", "skipped", "aborted", "cancelled"),
		"resolved_by": word("user", "policy", "client", "runtime"),
	}, fields{"reason": text}),
	"raw_agent_event": kind(fields{"event_type": text, "event": anything}, nil),
	"utility_command_started": kind(fields{"command_id": text, "command": text, "shell_mode": shellMode, "terminal_mode": terminal},
		fields{"cwd": text, "pid": integer, "columns": integer, "rows": integer, "owner_connection_id": text}),
	"utility_command_resized": kind(fields{"command_id": text, "columns": integer, "rows": integer}, nil),
	"utility_command_output":  kind(fields{"command_id": text, "stream": word("stdout", "stderr"), "content": text}, nil),
	"utility_command_exited": kind(fields{"command_id": text, "success": boolean},
		fields{"exit_code": orNull(integer), "signal": orNull(text), "reason": text}),
	"utility_file_search_results": kind(fields{
		"search_id": text, "query": text, "cwd": text, "truncated": boolean,
		"results": list(closed(fields{"path": text, "score": integer}, nil)),
	}, nil),
	"utility_file_read_result": kind(fields{
		"read_id": text, "path": text, "relative_path": text, "cwd": text, "content": text, "start_line": integer,
		"end_line": integer, "total_lines": integer, "truncated": boolean,
	}, nil),
	"utility_file_watch_started": kind(fields{"watch_id": text, "root_dir": text, "debounce_ms": integer},
		fields{"include_patterns": list(text), "exclude_patterns": list(text), "owner_connection_id": text}),
	"utility_file_watch_event": kind(fields{
		"watch_id": text, "change_type": word("create", "modify", "delete", "rename"), "path": text, "relative_path": text,
		"timestamp": integer, "is_directory": boolean,
	}, nil),
	"utility_file_watch_stopped": kind(fields{"watch_id": text}, fields{"reason": text}),
	"error":                      kind(fields{"message": text, "fatal": boolean, "error_type": errorType}, fields{"request_id": text}),
	"status":                     kind(fields{"message": text}, nil),
})

// envelope is one item of a stream.
var envelope = typed(map[string]func(schema) schema{
	"message":   kind(fields{"cursor": integer, "message": message}, nil),
	"snapshot":  kind(fields{"snapshot": snapshot}, nil),
	"heartbeat": kind(fields{"cursor": integer}, nil),
	"reset":     kind(fields{"reason": word("lagged", "replay_gap", "restored_from_snapshot"), "snapshot": snapshot}, nil),
})

// subscription answers subscribe.
var subscription = closed(fields{
	"connection_id": text, "subscription_id": text, "role": role, "controller_lease_granted": boolean,
	"controller_subscription_id": orNull(text), "controller_connection_id": orNull(text), "lease_expires_at": orNull(text),
	"heartbeat_interval_ms": integer, "snapshot": snapshot,
}, fields{"opt_out_notifications": optOuts})

// heartbeat answers heartbeat.
var heartbeat = closed(fields{
	"connection_id": text, "controller_lease_granted": boolean, "controller_connection_id": orNull(text),
	"lease_expires_at": orNull(text), "heartbeat_interval_ms": integer,
}, nil)
