// Command replayer reads a stream of server-sent events from its beginning, many
// times at once and again and again. It is a process of its own so that its work
// does not delay what bench measures beside it.
//
// It prints {"bytes":0} once every stream has begun. When its input ends, it
// prints how much it has read since: {"bytes":1234}.
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	url := flag.String("url", "", "of the events")
	replays := flag.Int("replays", 16, "streams at once")
	length := flag.Duration("length", 4*time.Second, "time after which a stream begins anew")
	flag.Parse()

	var read atomic.Int64
	var begun sync.WaitGroup
	begun.Add(*replays)
	client := &http.Client{Timeout: *length, Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	for range *replays {
		go func() { // ends with the process
			first := sync.OnceFunc(begun.Done)
			for {
				answer, err := client.Get(*url)
				if err != nil {
					log.Fatal(err)
				}
				if answer.StatusCode != http.StatusOK {
					log.Fatal(answer.Status)
				}
				buf := make([]byte, 1<<20)
				for err == nil {
					var n int
					n, err = answer.Body.Read(buf) // fails when it is time to begin anew
					read.Add(int64(n))
					first()
				}
				_ = answer.Body.Close() // given up, whatever is left to read
			}
		}()
	}
	begun.Wait()
	read.Store(0)
	out := json.NewEncoder(os.Stdout)
	report := func() {
		if err := out.Encode(map[string]int64{"bytes": read.Load()}); err != nil {
			log.Fatal(err)
		}
	}
	report()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		log.Fatal(err)
	}
	report()
}
