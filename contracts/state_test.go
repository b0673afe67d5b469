package contracts

import "testing"

func TestEffectiveIDOfPendingEntries(t *testing.T) { // R74
	for _, test := range []struct {
		entry PendingEntry
		want  string
	}{
		{PendingEntry{CallID: "t"}, "t"},
		{PendingEntry{CallID: "t", RequestID: "t:retry:1"}, "t:retry:1"},
	} {
		if got := test.entry.ID(); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.entry, got, test.want)
		}
	}
}

func TestNullStringsKeepTheirThreeStates(t *testing.T) {
	text := "x"
	for _, test := range []struct {
		value NullString
		json  string // of hello_ok's lease, empty if absent
		get   string
	}{
		{NullString{}, ``, ""},
		{Null(), `,"lease_expires_at":null`, ""},
		{NullableString(nil), `,"lease_expires_at":null`, ""},
		{NullableString(&text), `,"lease_expires_at":"x"`, "x"},
		{String(""), `,"lease_expires_at":""`, ""},
	} {
		got := string(mustEncode(t, &HelloOK{LeaseExpiresAt: test.value}).Body)
		if want := `{"type":"hello_ok","protocol_version":""` + test.json + `}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := test.value.Get(); got != test.get {
			t.Errorf("got %q, want %q", got, test.get)
		}
	}
}
