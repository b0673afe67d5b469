package contracts

import "reflect"

// enums lists the values of string types in canonical order. Code is not in it:
// clients must accept unknown codes.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[Role]():             enumValues(RoleViewer, RoleController),
	reflect.TypeFor[RequestType]():      enumValues(RequestTypes()...),
	reflect.TypeFor[Verdict]():          enumValues(VerdictApproved, VerdictDenied, VerdictCompleted, VerdictFailed, VerdictAnswered, VerdictRetried, VerdictSkipped, VerdictAborted, VerdictCancelled),
	reflect.TypeFor[Resolver]():         enumValues(ResolvedByUser, ResolvedByPolicy, ResolvedByClient, ResolvedByRuntime),
	reflect.TypeFor[RetryAction]():      enumValues(RetryActionRetry, RetryActionSkip, RetryActionAbort),
	reflect.TypeFor[Notification]():     enumValues(NotifyStatus, NotifyHeartbeat, NotifyConnectionInfo, NotifyCompaction),
	reflect.TypeFor[ThinkingLevel]():    enumValues(ThinkingOff, ThinkingMinimal, ThinkingLow, ThinkingMedium, ThinkingHigh, ThinkingUltra),
	reflect.TypeFor[ApprovalMode]():     enumValues(ApprovalAuto, ApprovalPrompt, ApprovalFail),
	reflect.TypeFor[ErrorType]():        enumValues(ErrorTransient, ErrorFatal, ErrorTool, ErrorCancelled, ErrorProtocol),
	reflect.TypeFor[UtilityOperation](): enumValues(OperationCommandExec, OperationFileSearch, OperationFileWatch, OperationFileRead),
	reflect.TypeFor[Stream]():           enumValues(StreamStdout, StreamStderr),
	reflect.TypeFor[ShellMode]():        enumValues(ShellModeShell, ShellModeDirect),
	reflect.TypeFor[TerminalMode]():     enumValues(TerminalPipe, TerminalPTY),
	reflect.TypeFor[FileChange]():       enumValues(FileCreated, FileModified, FileDeleted, FileRenamed),
	reflect.TypeFor[ExecutorType]():     enumValues(ExecutorLive, ExecutorReplay),
	reflect.TypeFor[ResetReason]():      enumValues(ResetLagged, ResetGap, ResetRestored),
	reflect.TypeFor[LeaseReason]():      enumValues(LeaseGranted, LeaseTakenOver, LeaseExpired, LeaseReleased, LeaseDraining, LeaseDenied),
}

func enumValues[T ~string](values ...T) []string {
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

// A family is a set of message types, by type key.
type family[T any] struct {
	members map[string]member[T]
	texts   *texts
}

// texts are the error texts of a family.
type texts struct{ parse, invalid, typeless, unknown string }

var (
	// nestedPlans holds the plans of nested types. Like all variables here, it does
	// not change after program start.
	nestedPlans = planner{}

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
	snapshotPlan   = nestedPlans.object(reflect.TypeFor[Snapshot]())

	// plansByType holds the plan of each type that can be encoded.
	plansByType = indexPlans()
)

func familyOf[T any](t *texts, constructors []func() T, typeOf func(T) string) family[T] {
	f := family[T]{members: make(map[string]member[T]), texts: t}
	for _, construct := range constructors {
		empty := construct()
		wire := typeOf(empty)
		f.members[wire] = member[T]{nestedPlans.message(wire, reflect.TypeOf(empty).Elem()), construct}
	}
	return f
}

func indexPlans() map[reflect.Type]*plan {
	index := map[reflect.Type]*plan{snapshotPlan.goType: snapshotPlan}
	for _, t := range bodies {
		index[t] = nestedPlans.object(t)
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
