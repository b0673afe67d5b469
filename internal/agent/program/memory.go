package program

import "github.com/seed-028515a8/maestro/internal/agent/memory"

const (
	memoryName = "program-session.json"
	maxSession = 256 // bytes of the id of a conversation, which is an argument
)

// memoryOf returns the memory of a conversation.
func (a *Agent) memoryOf(session string) memory.Memory {
	program := memory.Digest(append([]string{a.dialect.Name}, a.opts.Argv...)...)
	return memory.Memory{Session: session, Dir: a.opts.Dir, Program: program}
}

// recall reads the id of the conversation that an earlier server had with the same
// program in the same directory.
func (a *Agent) recall() {
	if a.dialect.Resume != nil {
		m, err := memory.Read(a.opts.StateDir, memoryName)
		if err != nil {
			a.opts.Log.Warn("cannot read the agent session", "error", err)
		}
		if m.Session != "" && m == a.memoryOf(m.Session) {
			a.session, a.prompted = m.Session, true
			return
		}
	}
	if a.host.Restored() {
		a.notes.Add(memory.TextForgotten)
	}
}

// remember stores the id of the conversation of a process that was prompted. If it
// cannot be stored, clients are told.
func (a *Agent) remember(p *Process) {
	p.mu.Lock()
	session := p.session
	p.mu.Unlock()
	a.mu.Lock()
	known := a.dialect.Resume == nil || a.session == session
	a.session, a.prompted = session, true
	a.mu.Unlock()
	if known {
		return
	}
	if err := a.memoryOf(session).Write(a.opts.StateDir, memoryName); err != nil {
		a.opts.Log.Warn("cannot save the agent session", "error", err)
		a.notes.AddOnce(memory.TextNotKept)
	}
}
