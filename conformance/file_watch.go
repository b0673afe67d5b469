package conformance

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// fileWatches judges what watches report and leave out, how they are refused, and how
// they end: 5.4, R82, R94, R99, R100.
func fileWatches() []Scenario {
	watch := anywhere(contracts.OperationFileWatch)
	return []Scenario{
		watch.settled("watch/started", "2.2 5.4", "A start tells the directory, the patterns as given, the debounce in effect and the owner", func(u *user) {
			l := u.watch("2.2", contracts.UtilityFileWatchStart{})
			u.s.shows("2.2", l.started, fields{"root_dir": u.home, "include_patterns": nil, "exclude_patterns": nil, "debounce_ms": 100, "owner_connection_id": u.owner()})
			all := u.watch("2.2", contracts.UtilityFileWatchStart{RootDir: &u.home, DebounceMS: new(int64(-5)), IncludePatterns: []string{"**/*.go", "*.md"}, ExcludePatterns: []string{"x/**"}})
			got := show(all.started.at("include_patterns")) + show(all.started.at("exclude_patterns"))
			u.s.failIf(got != `["**/*.go","*.md"]["x/**"]`, "2.2", "expected the patterns as given, got %s", got)
			u.s.shows("5.4", all.started, fields{"debounce_ms": 0, "root_dir": u.home}) // instead of -5
			some := u.watch("2.2", contracts.UtilityFileWatchStart{DebounceMS: new(int64(250))})
			u.s.shows("2.2", some.started, fields{"debounce_ms": 250})
		}),
		watch.settled("watch/create", "R99", "A new file and a new directory are created, each once", func(u *user) {
			u.files("sub/old")
			l := u.watch("R99", contracts.UtilityFileWatchStart{})
			u.files("f", "sub/g")
			u.shell("mkdir " + u.rel + "/dir")
			u.s.shows("2.2", l.reports("R99", contracts.FileCreated, "f"), fields{"is_directory": false})
			l.reports("R99", contracts.FileCreated, "sub/g")
			l.mark("R99", "mark")
			got := l.told(func(name string) bool { return name == "f" || name == "sub/g" })
			got = slices.DeleteFunc(got, func(what string) bool { return strings.HasPrefix(what, "modify ") }) // on a busy machine content comes later than its file
			u.s.failIf(len(got) != 2, "R99", "expected each new file once, got %q", got)
			u.s.shows("2.2", l.reports("5.4:directories", contracts.FileCreated, "dir"), fields{"is_directory": true})
		}),
		watch.settled("watch/modify", "R99", "A file that is written to is modified", func(u *user) {
			u.files("f", "sub/g", "other")
			l := u.watch("R99", contracts.UtilityFileWatchStart{})
			l.sees("R99", "echo more >> f", "modify f")
			l.sees("R99", "echo else > sub/g", "modify sub/g")
			u.shell("cat " + u.rel + "/other")
			l.mark("R99", "mark")
			l.only("R99", "modify f", "modify sub/g")
		}),
		watch.settled("watch/delete", "R99", "A file that is removed is deleted", func(u *user) {
			u.files("f", "sub/g", "dir/h")
			l := u.watch("R99", contracts.UtilityFileWatchStart{})
			u.s.shows("2.2", l.sees("R99", "rm f", "delete f"), fields{"is_directory": false})
			l.sees("R99", "rm sub/g", "delete sub/g")
			l.sees("R99", "rm -r dir", "delete dir/h")
			l.reports("5.4:directories", contracts.FileDeleted, "dir")
		}),
		watch.settled("watch/rename", "5.4", "A move is a delete of the old name and a rename of the new one", func(u *user) {
			u.files("old", "sub/far")
			l := u.watch("5.4", contracts.UtilityFileWatchStart{})
			l.sees("5.4", "mv old new", "delete old", "rename new")
			l.sees("5.4", "mv sub/far near", "delete sub/far", "rename near")
			l.mark("5.4", "mark")
			got := l.told(func(name string) bool { return name != "mark" && name != "sub" })
			u.s.failIf(len(got) != 4, "5.4", "expected two reports of each of two moves, got %q", got)
		}),
		watch.settled("watch/new-directories", "5.4 R99", "What happens in new directories is reported", func(u *user) {
			l := u.watch("R99", contracts.UtilityFileWatchStart{})
			u.files("a/b/c/deep")
			l.reports("R99", contracts.FileCreated, "a/b/c/deep")
			l.sees("R99", "echo more >> a/b/c/deep && echo new > a/b/second", "modify a/b/c/deep", "create a/b/second")
			l.sees("R99", "rm -r a && mkdir a && echo again > a/again", "delete a/b/c/deep", "create a/again")
		}),
		watch.settled("watch/links", "5.4", "What happens behind links is not reported", func(u *user) {
			u.files("watched/f", "elsewhere/g")
			u.shell("cd " + u.rel + "/watched && ln -s ../elsewhere before")
			l := u.watch("5.4", contracts.UtilityFileWatchStart{RootDir: new(u.rel + "/watched")})
			u.shell("cd " + u.rel + "/watched && ln -s ../elsewhere after")
			u.files("elsewhere/new")
			u.shell("echo more >> " + u.rel + "/elsewhere/g")
			u.files("watched/mark")
			l.reports("5.4", contracts.FileCreated, "mark")
			got := l.told(func(name string) bool { return strings.Contains(name, "/") })
			u.s.failIf(len(got) != 0, "5.4", "expected no report from behind a link, got %q", got)
		}),
		watch.settled("watch/two", "5.4", "Two watches report each for itself", func(u *user) {
			u.files("sub/f", "g")
			whole := u.watch("5.4", contracts.UtilityFileWatchStart{})
			part := u.watch("5.4", contracts.UtilityFileWatchStart{RootDir: new(u.rel + "/sub")})
			whole.sees("5.4", "echo more >> g && echo more >> sub/f", "modify g", "modify sub/f")
			part.reports("5.4", contracts.FileModified, "f")
			part.stop()
			whole.sees("5.4", "rm sub/f", "delete sub/f")
			part.only("5.4", "modify f")
		}),
		watch.settled("watch/together", "5.4", "Many changes within the debounce are one report", func(u *user) {
			u.files("f")
			l := u.watch("5.4", contracts.UtilityFileWatchStart{DebounceMS: new(int64(1000))})
			l.sees("5.4", "for i in 1 2 3 4 5 6 7 8; do echo $i >> f; echo $i >> new; done; echo > gone; rm gone", "modify f", "create new")
			l.mark("5.4", "mark")
			got := l.told(func(name string) bool { return name == "f" || name == "new" })
			u.s.failIf(len(got) != 2, "5.4", "expected one report for each file, got %q", got)
		}),
		watch.settled("watch/busy-file", "5.4", "A file that is written to all the time is reported nevertheless", func(u *user) {
			u.files("f")
			l := u.watch("5.4:busy", contracts.UtilityFileWatchStart{DebounceMS: new(int64(200))})
			j := u.sh("5.4:busy", "for i in $(seq 1000); do echo more >> "+u.rel+"/f; sleep 0.02; done")
			l.reports("5.4:busy", contracts.FileModified, "f")
			u.none("5.4:busy", j.from, message("utility_command_exited").with("command_id", j.id))
			j.end()
		}).slow(),
		watch.settled("watch/built-in-excludes", "R99", "Dependencies, version control, build output and logs are never reported", func(u *user) {
			l := u.watch("R99", contracts.UtilityFileWatchStart{})
			silent := []string{"node_modules/f", "sub/node_modules/pkg/f", ".git/f", "dist/f", "sub/build/f", ".next/f", ".nuxt/f", "coverage/f",
				"f.log", "sub/f.log", ".DS_Store", "sub/thumbs.db"}
			l.admits("R99", []string{"distant/f", "build.txt", "f.logs", "sub/dist.go", ".github/f"}, silent)
			u.in("echo more >> node_modules/f && rm f.log")
			l.mark("R99", "mark")
			l.keepsSilent("R99", silent)
		}),
		watch.settled("watch/includes", "5.4", "With include patterns only what they fit is reported", func(u *user) {
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"**/*.go", "docs/*.md"}},
				[]string{"f.go", "sub/deep/f.go", "docs/f.md"}, []string{"f.txt", "docs/sub/f.md", "f.md", "f.gob", "sub/f.log"})
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"*.txt"}},
				[]string{"f.txt"}, []string{"sub/f.txt", "f.TXT"})
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"sub/**"}},
				[]string{"sub/f", "sub/deep/f"}, []string{"f", "subs/f", "x/sub/f"})
		}),
		watch.settled("watch/excludes", "5.4", "What exclude patterns fit is not reported, whatever includes say", func(u *user) {
			u.admits("5.4", contracts.UtilityFileWatchStart{ExcludePatterns: []string{"**/secret/**", "*.tmp"}},
				[]string{"f", "sub/f.tmp", "secrets/f"}, []string{"secret/f", "sub/secret/deep/f", "f.tmp", "f.log"})
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"**/*.go"}, ExcludePatterns: []string{"**/*_test.go"}},
				[]string{"f.go", "sub/g.go"}, []string{"f_test.go", "sub/g_test.go", "f.txt"})
		}),
		watch.settled("watch/globs", "5.4", "Patterns have stars, question marks and classes, and nothing else", func(u *user) {
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"?.x", "[a-c]1", "a*z", "#f", "{y,z}", "*/m", "p/**/q", ".*"}},
				[]string{"a.x", "é.x", "b1", "az", "a--z", "#f", "{y,z}", "d/m", ".hidden/m", "p/q", "p/1/2/q", ".dot"},
				[]string{"ab.x", "sub/a.x", "d1", "B1", "a/z", "f", "y", "m", "d/e/m", "p/1/q2", "sub/.dot"})
			u.admits("5.4", contracts.UtilityFileWatchStart{IncludePatterns: []string{"**"}}, []string{"f", ".f", "sub/.f"}, nil)
		}),
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
			u.watch("R82", contracts.UtilityFileWatchStart{WatchID: "known"}).stop()
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
			u.s.failIf(fmt.Sprint(started) != fmt.Sprint(stopped),
				"R100", "expected each watch to start and stop once or not at all, got starts %v and stops %v", started, stopped)
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
				u.in(way)
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
			u.s.failIf(len(list) != 1 || show(list[0]["include_patterns"]) != `["*.go"]` || !(&Frame{Fields: list[0]}).matches(
				fields{"watch_id": l.id, "root_dir": u.home, "owner_connection_id": u.owner(), "debounce_ms": 70}),
				"A66", "expected the watch %s of %s with what was asked for, got %s", l.id, u.owner(), show(list))
			l.stop()
		}),
	}
}

// A lookout is a watch of a user, from its start on.
type lookout struct {
	u       *user
	id      string
	root    string // absolute
	from    int    // its messages are in the log from here on
	started *Frame
}

// watch starts a watch, by default of the user's directory, and waits until it
// has.
func (u *user) watch(rule string, cmd contracts.UtilityFileWatchStart) *lookout {
	if cmd.WatchID == "" {
		cmd.WatchID = u.id("watch")
	}
	if cmd.RootDir == nil {
		cmd.RootDir = &u.rel
	}
	l := &lookout{u: u, id: cmd.WatchID, from: len(u.log)}
	u.do(rule, &cmd)
	l.started = l.await(rule, message("utility_file_watch_started"))
	l.root = l.started.str("root_dir")
	return l
}

func (l *lookout) await(rule string, w want) *Frame {
	return l.u.await(rule, l.from, w.with("watch_id", l.id))
}

// reports waits for an event and holds it against what is true of any.
func (l *lookout) reports(rule string, kind contracts.FileChange, name string) *Frame {
	w := message("utility_file_watch_event").with("change_type", string(kind)).with("relative_path", name)
	if l.u.s.published() && kind == contracts.FileCreated { // a published server never sends create
		w = anyOf(w, message("utility_file_watch_event").with("change_type", string(contracts.FileRenamed)).with("relative_path", name))
	}
	f := l.await(rule, w)
	s, got := l.u.s, f.str("change_type")
	s.adviseIf(got != string(kind), "5.4:create", "expected %s of %s, got %s", kind, name, got)
	s.shows("2.2", f, fields{"path": path.Join(l.root, name)})
	at := time.UnixMilli(number(f.at("timestamp")))
	s.failIf(time.Since(at).Abs() > time.Hour, "2.2", "expected a timestamp in milliseconds, got %s", show(f.at("timestamp")))
	return f
}

// sees runs a command in the user's directory and waits for reports, each a change and a
// name. It returns the last one.
func (l *lookout) sees(rule, command string, reports ...string) (last *Frame) {
	l.u.in(command)
	for _, report := range reports {
		kind, name, _ := strings.Cut(report, " ")
		last = l.reports(rule, contracts.FileChange(kind), name)
	}
	return last
}

// told lists the events so far, about names that fit.
func (l *lookout) told(fits func(name string) bool) []string {
	var list []string
	for _, f := range l.u.log[l.from:] {
		if f.Type == "utility_file_watch_event" && f.str("watch_id") == l.id && fits(f.str("relative_path")) {
			list = append(list, f.str("change_type")+" "+f.str("relative_path"))
		}
	}
	return list
}

// mark makes a file and waits until it is reported: what happened before has
// been reported by then, or will not be.
func (l *lookout) mark(rule, name string) {
	l.u.files(name)
	l.await(rule, message("utility_file_watch_event").with("relative_path", name))
}

// only fails unless exactly these were told of, marks aside.
func (l *lookout) only(rule string, want ...string) {
	got := l.told(func(name string) bool { return !strings.Contains(name, "mark") })
	l.u.s.failIf(fmt.Sprint(got) != fmt.Sprint(want), rule, "expected reports %q, got %q", want, got)
}

func (l *lookout) stop() {
	l.u.do("5.4", &contracts.UtilityFileWatchStop{WatchID: l.id})
	l.await("5.4", message("utility_file_watch_stopped").with("reason", "Stopped by controller"))
}

// admits fails unless a watch with the patterns reports exactly some of the files that
// are made.
func (u *user) admits(rule string, cmd contracts.UtilityFileWatchStart, reported, silent []string) {
	cmd.RootDir = new(u.rel)
	l := u.watch(rule, cmd)
	l.admits(rule, reported, silent)
	l.stop()
	for _, name := range append(reported, silent...) {
		u.shell("rm '" + u.rel + "/" + name + "'")
	}
}

// admits makes files and fails unless the watch reports some and keeps silent about the
// others.
func (l *lookout) admits(rule string, reported, silent []string) {
	l.u.files(slices.Concat(silent, reported)...)
	for _, name := range reported {
		l.reports(rule, contracts.FileCreated, name)
	}
	l.keepsSilent(rule, silent)
}

func (l *lookout) keepsSilent(rule string, names []string) {
	told := l.told(func(name string) bool { return slices.Contains(names, name) })
	l.u.s.failIf(len(told) != 0, rule, "expected nothing about these files with includes %s and excludes %s, got %q",
		show(l.started.at("include_patterns")), show(l.started.at("exclude_patterns")), told)
}
