package journal

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"
)

var trials = flag.Int("trials", 20, "how often TestKilledWriterLosesNothing kills the writer")

// writerDir is set for the process that is to be killed.
const writerDir = "JOURNAL_TEST_WRITER_DIR"

func TestMain(m *testing.M) {
	flag.Parse()
	if dir := os.Getenv(writerDir); dir != "" {
		fmt.Fprintln(os.Stderr, appendForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var killedOptions = FileOptions{SegmentBytes: 64 << 10, RetainBytes: 1 << 40}

// appendForever appends batches of one to four entries and acknowledges each on
// stdout once Append has returned.
func appendForever(dir string) error {
	s, err := Open(dir, killedOptions)
	if err != nil {
		return err
	}
	for {
		_, last := s.Bounds()
		batch := notes(last+1, last+1+last%4)
		if err := s.Append(batch); err != nil {
			return err
		}
		ack := binary.LittleEndian.AppendUint64(nil, batch[len(batch)-1].Cursor)
		if _, err := os.Stdout.Write(ack); err != nil {
			return err
		}
	}
}

// Whatever was acknowledged before a SIGKILL is there after reopening, once
// and in order, under the same epoch. Each trial goes on where the last ended.
func TestKilledWriterLosesNothing(t *testing.T) {
	dir := t.TempDir()
	epoch, acked := "", uint64(0)
	for trial := range *trials {
		got := killWriter(t, dir)
		if got <= acked {
			t.Fatalf("trial %d: the writer got to %d, want beyond %d", trial, got, acked)
		}
		acked = got
		s, err := Open(dir, killedOptions)
		if err != nil {
			t.Fatalf("trial %d: %v", trial, err)
		}
		list := cursors(t, s, 0)
		for i, c := range list {
			if c != uint64(i)+1 {
				t.Fatalf("trial %d: got entry %d in place %d", trial, c, i+1)
			}
		}
		if uint64(len(list)) < acked {
			t.Errorf("trial %d: acknowledged %d, found %d", trial, acked, len(list))
		}
		if trial > 0 && s.Epoch() != epoch {
			t.Errorf("trial %d: got epoch %s, want %s", trial, s.Epoch(), epoch)
		}
		epoch = s.Epoch()
		crash(t, s)
	}
	t.Logf("%d entries acknowledged in %d trials", acked, *trials)
}

// killWriter kills a writer at a random moment after its first acknowledgement
// and returns the last.
func killWriter(t *testing.T, dir string) (acked uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r, ack := bufio.NewReader(out), make([]byte, 8)
	var timer *time.Timer
	for {
		if _, err := io.ReadFull(r, ack); err != nil {
			break
		}
		acked = binary.LittleEndian.Uint64(ack)
		if timer == nil {
			timer = time.AfterFunc(rand.N(50*time.Millisecond), func() { cmd.Process.Kill() })
			defer timer.Stop()
		}
	}
	if err := cmd.Wait(); err == nil || timer == nil {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	return acked
}
