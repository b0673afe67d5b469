package handshake_test

import (
	"errors"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

func TestUtilitiesNeedTheirCapability(t *testing.T) { // R81
	tests := []struct {
		cmd contracts.Command
		op  contracts.UtilityOperation
	}{
		{&contracts.UtilityCommandStart{CommandID: "x"}, contracts.OperationCommandExec},
		{&contracts.UtilityCommandStdin{CommandID: "x"}, contracts.OperationCommandExec},
		{&contracts.UtilityCommandResize{CommandID: "x"}, contracts.OperationCommandExec},
		{&contracts.UtilityFileSearch{SearchID: "x"}, contracts.OperationFileSearch},
		{&contracts.UtilityFileRead{ReadID: "x"}, contracts.OperationFileRead},
		{&contracts.UtilityFileWatchStart{WatchID: "x"}, contracts.OperationFileWatch},
	}
	operations := []contracts.UtilityOperation{
		contracts.OperationCommandExec, contracts.OperationFileSearch, contracts.OperationFileWatch, contracts.OperationFileRead,
	}
	for _, tt := range tests {
		for _, op := range operations {
			terms := handshake.Terms{Role: controller}
			terms.Capabilities.UtilityOperations = []contracts.UtilityOperation{op}
			err := handshake.Require(tt.cmd, terms)
			if op == tt.op {
				if err != nil {
					t.Errorf("%s with %s: got %v, want no error", tt.cmd.CommandType(), op, err)
				}
				continue
			}
			got, ok := errors.AsType[*contracts.Error](err)
			want := tt.cmd.CommandType() + " requires " + string(tt.op) + " capability"
			if !ok || got.Message != want || got.Code != contracts.CodeUnsupportedCapability || got.Type != contracts.ErrorTool || got.RequestID != "x" {
				t.Errorf("%s with %s: got %+v, want %q, a tool error for x", tt.cmd.CommandType(), op, err, want)
			}
		}
	}
}

func TestOtherCommandsNeedNoCapability(t *testing.T) { // R82
	for _, cmd := range []contracts.Command{
		&contracts.Hello{}, &contracts.Init{}, &contracts.Prompt{}, &contracts.Interrupt{}, &contracts.Cancel{},
		&contracts.Shutdown{}, &contracts.ToolResponse{}, &contracts.ClientToolResult{}, &contracts.ServerRequestResponse{},
		&contracts.UtilityCommandTerminate{}, &contracts.UtilityFileWatchStop{},
	} {
		if err := handshake.Require(cmd, handshake.Terms{Role: controller}); err != nil {
			t.Errorf("%s: got %v, want no error", cmd.CommandType(), err)
		}
	}
}
