package contracts

import "reflect"

// enums lists the closed sets of strings in canonical order. Codes are absent:
// a client must cope with one it does not know.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[Role]():             closed(RoleViewer, RoleController),
	reflect.TypeFor[RequestType]():      closed(RequestTypes()...),
	reflect.TypeFor[Verdict]():          closed(VerdictApproved, VerdictDenied, VerdictCompleted, VerdictFailed, VerdictAnswered, VerdictRetried, VerdictSkipped, VerdictAborted, VerdictCancelled),
	reflect.TypeFor[Resolver]():         closed(ResolvedByUser, ResolvedByPolicy, ResolvedByClient, ResolvedByRuntime),
	reflect.TypeFor[RetryAction]():      closed(RetryActionRetry, RetryActionSkip, RetryActionAbort),
	reflect.TypeFor[Notification]():     closed(NotifyStatus, NotifyHeartbeat, NotifyConnectionInfo, NotifyCompaction),
	reflect.TypeFor[ThinkingLevel]():    closed(ThinkingOff, ThinkingMinimal, ThinkingLow, ThinkingMedium, ThinkingHigh, ThinkingUltra),
	reflect.TypeFor[ApprovalMode]():     closed(ApprovalAuto, ApprovalPrompt, ApprovalFail),
	reflect.TypeFor[ErrorType]():        closed(ErrorTransient, ErrorFatal, ErrorTool, ErrorCancelled, ErrorProtocol),
	reflect.TypeFor[UtilityOperation](): closed(OperationCommandExec, OperationFileSearch, OperationFileWatch, OperationFileRead),
	reflect.TypeFor[Stream]():           closed(StreamStdout, StreamStderr),
	reflect.TypeFor[ShellMode]():        closed(ShellModeShell, ShellModeDirect),
	reflect.TypeFor[TerminalMode]():     closed(TerminalPipe, TerminalPTY),
	reflect.TypeFor[FileChange]():       closed(FileCreated, FileModified, FileDeleted, FileRenamed),
	reflect.TypeFor[ExecutorType]():     closed(ExecutorLive, ExecutorReplay),
	reflect.TypeFor[ResetReason]():      closed(ResetLagged, ResetGap, ResetRestored),
	reflect.TypeFor[LeaseReason]():      closed(LeaseGranted, LeaseTakenOver, LeaseExpired, LeaseReleased, LeaseDraining, LeaseDenied),
}

func closed[T ~string](values ...T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// A member is one message type of a family.
type member[T any] struct {
	*plan
	make func() T // a new, empty message
}

// A family is the messages that may stand in one place, by type key.
type family[T any] struct {
	members map[string]member[T]
	texts   *texts
}

// texts are what errors about a family say.
type texts struct{ parse, invalid, typeless, unknown string }

var (
	// planned holds the plans of nested types. Nothing changes it, nor any
	// other variable here, once the program has started.
	planned = planner{}

	commandTexts = &texts{
		parse:    "Failed to parse command: ",
		invalid:  "Invalid headless command: ",
		typeless: "$.type Expected known headless command type",
		unknown:  "Unknown headless command type",
	}
	messageTexts = &texts{
		parse:    "Failed to parse message: ",
		invalid:  "Invalid headless message: ",
		typeless: "$.type Expected known headless message type",
		unknown:  "Unknown headless message type",
	}

	commands       = familyOf(commandTexts, newCommand, Command.CommandType)
	clientControls = familyOf(commandTexts, newClientControl, Frame.FrameType)
	events         = familyOf(messageTexts, newEvent, Event.EventType)
	serverFrames   = familyOf(messageTexts, newServerFrame, Frame.FrameType)
	snapshotPlan   = planned.object(reflect.TypeFor[Snapshot]())

	// plansByType finds the plan of a message to encode.
	plansByType = indexPlans()
)

func familyOf[T any](t *texts, constructors []func() T, typeOf func(T) string) family[T] {
	f := family[T]{members: make(map[string]member[T]), texts: t}
	for _, construct := range constructors {
		empty := construct()
		wire := typeOf(empty)
		f.members[wire] = member[T]{planned.message(wire, reflect.TypeOf(empty).Elem()), construct}
	}
	return f
}

func indexPlans() map[reflect.Type]*plan {
	index := map[reflect.Type]*plan{snapshotPlan.goType: snapshotPlan}
	for _, t := range bodies {
		index[t] = planned.object(t)
	}
	addPlans(index, commands)
	addPlans(index, clientControls)
	addPlans(index, events)
	addPlans(index, serverFrames)
	return index
}

func addPlans[T any](index map[reflect.Type]*plan, f family[T]) {
	for _, m := range f.members {
		index[m.goType] = m.plan
	}
}
