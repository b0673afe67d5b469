package contracts_test

import (
	"errors"
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
)

func ExampleDecoder_Command() {
	d := &contracts.Decoder{Unknown: func(pointer string) { fmt.Println("ignored", pointer) }}

	command, err := d.Command([]byte(`{"type":"prompt","content":"list the tests","mood":"curious"}`))
	fmt.Println(command.(*contracts.Prompt).Content, err)

	_, err = d.Command([]byte(`{"type":"prompt","attachments":["a.txt",7]}`))
	fmt.Println(err)
	// Output:
	// ignored /mood
	// list the tests <nil>
	// Failed to parse command: Invalid headless command: /attachments/1 Expected string; /content Required property
}

// A client opens the envelope, then decodes the message in it.
func ExampleDecoder_ServerFrame() {
	d := &contracts.Decoder{}
	frame, err := d.ServerFrame([]byte(`{"type":"message","cursor":7,"message":{"type":"status","message":"Working"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	envelope := frame.(*contracts.MessageEnvelope)
	event, err := d.Event(envelope.Message)
	switch {
	case errors.Is(err, contracts.ErrUnknownType):
		fmt.Println("skipped", envelope.Cursor)
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println(envelope.Cursor, event.(*contracts.Status).Message)
	}
	// Output: 7 Working
}

func ExampleEncodeEvent() {
	encoded, err := contracts.EncodeEvent(&contracts.ToolOutput{CallID: "t1", Content: "a < b\n"})
	fmt.Printf("%s %v\n", encoded.Body, err)
	fmt.Printf("%s\n", encoded.Body[encoded.TextStart:encoded.TextEnd])
	// Output:
	// {"type":"tool_output","call_id":"t1","content":"a < b\n"} <nil>
	// a < b\n
}
