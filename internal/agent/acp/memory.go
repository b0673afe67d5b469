package acp

import "github.com/seed-028515a8/maestro/internal/agent/memory"

// memoryName is the name of the memory file in Options.StateDir.
const memoryName = "acp-session.json"

// recall reads the memory of an earlier server. The memory of another program,
// or of another directory, does not count. If there is none, an empty memory is
// written, so that the next server knows that no conversation was lost.
func (a *Agent) recall() {
	m, err := memory.Read(a.opts.StateDir, memoryName)
	switch {
	case err != nil:
		a.opts.Log.Warn("cannot read the agent session", "error", err)
	case m.Dir == a.opts.Dir && m.Program == memory.Digest(a.argv...):
		a.memory, a.commands = m, m.Commands
		return
	}
	if err != nil || m.Session != "" || a.host.Restored() {
		a.notes.Add(memory.TextForgotten)
		return
	}
	if err := a.memoryOf("").Write(a.opts.StateDir, memoryName); err != nil {
		a.opts.Log.Debug("cannot save the agent session", "error", err) // reported when there is a session
	}
}

// memoryOf returns the memory of a session. The caller holds a.mu, or is alone.
func (a *Agent) memoryOf(session string) memory.Memory {
	return memory.Memory{Session: session, Dir: a.opts.Dir, Program: memory.Digest(a.argv...), Commands: a.commands}
}

// remember stores the id of a session that has been prompted. If it cannot be
// stored, clients are told.
func (a *Agent) remember(session string) {
	a.mu.Lock()
	m := a.memoryOf(session)
	if a.memory == m {
		a.mu.Unlock()
		return
	}
	a.memory = m
	a.mu.Unlock()
	if err := m.Write(a.opts.StateDir, memoryName); err != nil {
		a.opts.Log.Warn("cannot save the agent session", "error", err)
		a.notes.AddOnce(memory.TextNotKept)
	}
}

// forget drops a session that cannot be continued, and tells clients. The file
// is replaced when there is another session to store.
func (a *Agent) forget(why error) {
	a.mu.Lock()
	a.memory = memory.Memory{}
	a.mu.Unlock()
	a.notes.Add("The agent starts a new conversation, because it could not go on with the earlier one: " + why.Error())
}

// session returns the id of the session to continue, "" if there is none.
func (a *Agent) session() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memory.Session
}
