package conformance

import (
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// watchEnds judges how watches are refused, and how they end: 5.4, R82, R94,
// R99, R100.
func watchEnds() []Scenario {
	watch := anywhere(contracts.OperationFileWatch)
	return []Scenario{
		watch.settled("watch/stopped", "R99 5.4", "After a watch was stopped nothing is reported, not even what waited", func(u *user) {
			l := u.watch("R99", contracts.UtilityFileWatchStart{DebounceMS: new(int64(300))})
			u.files("waiting")
			l.stop()
			l.await("R99", message("utility_file_watch_stopped"))
			from := len(u.log)
			u.files("after")
			u.s.pause("R99", 400*time.Millisecond) // longer than what waited would have
			u.still("R99", from, anyOf(message("utility_file_watch_event"), message("utility_file_watch_stopped")))
		}),
		watch.settled("watch/id-again", "5.4", "The id of a watch is taken until it was stopped", func(u *user) {
			l := u.watch("5.4", contracts.UtilityFileWatchStart{WatchID: "twin"})
			u.denied(&contracts.UtilityFileWatchStart{WatchID: "twin"}, refusal{rule: "5.4", text: "Utility file watch already exists: twin", id: "twin"})
			l.stop()
			again := u.watch("5.4", contracts.UtilityFileWatchStart{WatchID: "twin"})
			u.files("f")
			again.reports("5.4", contracts.FileCreated, "f")
			again.stop()
		}),
		watch.settled("watch/stop-unknown", "R82", "Stopping what is unknown or stopped says nothing", func(u *user) {
			l := u.watch("R82", contracts.UtilityFileWatchStart{WatchID: "known"})
			l.stop()
			from := len(u.log)
			for _, id := range []string{"ghost", "known"} {
				u.do("R82", &contracts.UtilityFileWatchStop{WatchID: id})
			}
			u.still("R82", from, anyOf(toolError, message("utility_file_watch_stopped")))
		}),
		watch.settled("watch/stop-at-once", "R100", "A watch that is stopped at once started and stopped, or neither", func(u *user) {
			from := len(u.log)
			for i := range 5 {
				id := fmt.Sprintf("hasty-%d", i)
				u.try(&contracts.UtilityFileWatchStart{WatchID: id, RootDir: &u.rel})
				u.try(&contracts.UtilityFileWatchStop{WatchID: id})
			}
			u.watch("R100", contracts.UtilityFileWatchStart{}).stop()
			u.still("R100", len(u.log), toolError)
			started, stopped := map[string]int{}, map[string]int{}
			for _, f := range u.log[from:] {
				switch f.Type {
				case "utility_file_watch_started":
					started[f.str("watch_id")]++
				case "utility_file_watch_stopped":
					stopped[f.str("watch_id")]++
				}
			}
			if fmt.Sprint(started) != fmt.Sprint(stopped) {
				u.s.fail("R100", "expected each watch to start and stop once or not at all, got starts %v and stops %v", started, stopped)
			}
		}),
		watch.settled("watch/bad-root", "5.4", "A directory that is not there is refused, and the id stays free", func(u *user) {
			u.files("file")
			for given, named := range map[string]string{u.rel + "/none": u.home + "/none", u.home + "/no/such": u.home + "/no/such", u.rel + "/file": u.home + "/file"} {
				u.denied(&contracts.UtilityFileWatchStart{WatchID: "bad", RootDir: &given},
					refusal{rule: "5.4", text: "Utility file watch root directory does not exist: " + named, id: "bad"})
			}
			u.none("5.4", 0, message("utility_file_watch_started"))
			u.watch("5.4", contracts.UtilityFileWatchStart{WatchID: "bad"}).stop()
		}),
		watch.settled("watch/outside", "R94", "A directory outside the workspace is refused", func(u *user) {
			for _, root := range u.ways() {
				id := u.id("out")
				u.denied(&contracts.UtilityFileWatchStart{WatchID: id, RootDir: &root}, outsideRefusal("R94", id))
			}
			u.none("R94", 0, message("utility_file_watch_started"))
		}),
		watch.settled("watch/root-removed", "5.4", "With its directory a watch ends and says why", func(u *user) {
			for _, way := range []string{"rm -r sub", "mv sub moved"} {
				u.files("sub/deep/f")
				l := u.watch("5.4:removed", contracts.UtilityFileWatchStart{RootDir: new(u.rel + "/sub")})
				u.shell("cd " + u.rel + " && " + way)
				l.await("5.4:removed", message("utility_file_watch_stopped").with("reason", "Watch root removed"))
			}
		}),
		watch.settled("watch/many", "5.4", "More watches than 64 are refused, naming the one", func(u *user) {
			u.shell("mkdir " + u.rel + "/sub")
			var all []*lookout
			for range 64 {
				all = append(all, u.watch("5.4:limit", contracts.UtilityFileWatchStart{RootDir: new(u.rel + "/sub")}))
			}
			extra := &contracts.UtilityFileWatchStart{WatchID: "extra", RootDir: new(u.rel + "/sub")}
			u.denied(extra, refusal{rule: "5.4:limit", id: "extra"})
			u.none("5.4:limit", 0, message("utility_file_watch_started").with("watch_id", "extra"))
			all[0].stop()
			u.watch("5.4:limit", *extra).stop()
		}),
		watch.settled("watch/in-state", "A66 4.2", "A state has the watches with what was asked for and their owner", func(u *user) {
			l := u.watch("A66", contracts.UtilityFileWatchStart{IncludePatterns: []string{"*.go"}, DebounceMS: new(int64(70))})
			list := listOf(u.state(), "state.active_file_watches")
			if len(list) != 1 || list[0]["watch_id"] != l.id || list[0]["root_dir"] != u.home || list[0]["owner_connection_id"] != u.owner() ||
				!same(list[0]["debounce_ms"], 70) || show(list[0]["include_patterns"]) != `["*.go"]` {
				u.s.fail("A66", "expected the watch %s of %s with what was asked for, got %s", l.id, u.owner(), show(list))
			}
			l.stop()
		}),
	}
}
