package heddle

// aliases are the protocol's names of tools that the built-in agent has under other
// names.
var aliases = map[string]string{"read_file": "read", "write_file": "write", "edit_file": "edit", "shell": "bash"}

// A toolbox has the tools of a session under the names that the client knows.
type toolbox map[string]string // the client's name by the agent's name

// newToolbox returns the tools that a client listed.
func newToolbox(listed []string) toolbox {
	box := toolbox{}
	for theirs, ours := range aliases {
		box[ours] = theirs
	}
	for _, name := range listed {
		box[agentTool(name)] = name
	}
	return box
}

// agentTool returns the agent's name of a tool.
func agentTool(name string) string {
	if ours, ok := aliases[name]; ok {
		return ours
	}
	return name
}

// shown returns the client's name of a tool.
func (b toolbox) shown(name string) string {
	if theirs, ok := b[name]; ok {
		return theirs
	}
	return name
}
