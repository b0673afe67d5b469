// The main screens of the page with believable content, for pictures and for checks of accessibility.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { browser, button, composer, server, startServer } from "./harness.mjs";

const say = (text) => ({ say: { text, chunk: 400 } });
const tool = (name, args, output, more = {}) => ({ tool: { name, args, output, ...more } });
const usage = (input, output, cost) => ({
  usage: { input_tokens: input, output_tokens: output, cache_read_tokens: 6 * input, total_cost_usd: cost },
});

const retries = `// Put stores a file. It tries again while the storage is overloaded.
func (c *Client) Put(ctx context.Context, name string, body io.ReadSeeker) error {
	pause := c.pause
	for attempt := 1; ; attempt++ {
		err := c.put(ctx, name, body)
		if !errors.Is(err, ErrOverloaded) || attempt == maxAttempts {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause *= 2
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}
`;
const before = `// Put stores a file.
func (c *Client) Put(ctx context.Context, name string, body io.Reader) error {
	return c.put(ctx, name, body)
}
`;
const runs = ["first", "second", "third", "last", "first", "second", "third", "last"]
  .map((which) => `=== RUN   TestPutRetries/${which}_attempt\n`)
  .join("");
const slowly = { chunk: runs.length, delay_ms: 2000 }; // for 80 seconds always the same last lines
const ran = `${runs.repeat(40)}--- PASS: TestPutRetries (0.31s)\n`;
const test = "go test ./upload -run TestPut -race -count=20 -v";

const asked = "Uploads fail when the storage answers 503. Retry them with a growing pause, and cover it with a test.";
const found = [
  { think: "The client returns every error at once. I will see who calls Put, and whether the body can be read twice." },
  say("I will look at the client and at its callers first.\n\n"),
  tool("read", { path: "upload/client.go" }, before),
  tool("read", { path: "upload/client_test.go" }, "package upload\n"),
  tool("grep", { pattern: "\\.Put\\(", path: "." }, "cmd/sync/main.go:61: err = client.Put(ctx, name, file)\n"),
  say(
    "`Put` returns the first error. A retry has to read the body again, so `Put` now takes an `io.ReadSeeker`; " +
      "all three callers pass files, which can seek.\n\n- Only **503** is tried again: other errors will not pass.\n" +
      "- The pause doubles from 200 ms, five attempts at most.\n- A cancelled context ends the wait.\n\n",
  ),
  tool("edit", { path: "upload/client.go", old_string: before, new_string: retries }, "1 file changed\n"),
];

const parts = "booking berth crew deck dock engine ferry fleet harbour journal".split(" ");
const kinds = ["", "_store", "_test", "_handler"];
const forty = parts.flatMap((name) => kinds.map((kind) => `${name}/${name}${kind}.go`));

function renamed(path, i) {
  const kind = path.split("/")[0];
  const lines = (name, item) => [
    `// ${kind} ${i + 1}`,
    `func (s *Store) List${name}s(ctx context.Context) ([]${name}, error) {`,
    `\tvar all []${name}`,
    `\treturn all, s.each(ctx, "${kind}", func(${item} ${name}) error {`,
    ...(i % 3 === 0 ? [`\t\t${item}.Port = strings.ToUpper(${item}.Port)`] : []),
    `\t\tall = append(all, ${item})`,
    "\t\treturn nil",
    "\t})",
    "}",
    "",
  ];
  const args = { path, old_string: lines("Boat", "b").join("\n"), new_string: lines("Vessel", "v").join("\n") };
  return tool("edit", args, "1 file changed\n");
}

/** Sessions beside the one that is looked at: what was asked for, how it stands, who asked, and its age in minutes. */
const others = [
  ["Delete the uploads that nobody fetched for a year", "waits", "Ben", 2],
  ["Which regions should the new bucket replicate to?", "asks", "Ann", 6],
  ["Bring the changelog of 2.4 up to date", "works", "Ben", 0],
  ["Migrate the sessions table to UUIDs", "idle", "Ann", 14],
  ["Explain the memory that the importer needs", "idle", "Ann", 25],
  ["Speed up the search for berths", "idle", "Ben", 48],
  ["Replace the date picker", "idle", "Ann", 95],
  ["Translate the error pages into Danish", "works", "Ben", 1],
  ["Find out why the nightly import is late", "works", "Ann", 3],
  ["Move the mails to the new queue", "idle", "Ann", 11],
  ["Add the opening hours to the map", "idle", "Ben", 130],
  ["Upgrade to Go 1.26", "idle", "Ann", 150],
  ["Drop the support for Internet Explorer", "idle", "Ben", 180],
  ["Check the licences of all dependencies", "idle", "Ann", 210],
  ["Make the login page work without JavaScript", "idle", "Ben", 240],
  ["Sort the departures by platform", "idle", "Ann", 270],
  ["Write the runbook for a full disk", "idle", "Ben", 300],
  ["Measure how long a booking takes", "idle", "Ben", 33],
  ["Fix the flicker of the seat plan", "idle", "Ann", 360],
  ["Send invoices in the language of the customer", "idle", "Ben", 420],
  ["Remove the feature flag for vouchers", "idle", "Ann", 480],
  ["Warn before a crossing is fully booked", "idle", "Ben", 540],
  ["Let the crew change its own rota", "idle", "Ann", 600],
  ["Store the tide tables in UTC", "idle", "Ben", 660],
  ["Cache the weather for ten minutes", "idle", "Ann", 720],
  ["Print boarding passes on A6", "idle", "Ben", 780],
  ["Read the timetable from the new feed", "idle", "Ann", 840],
  ["Count vehicles by their length", "idle", "Ben", 900],
  ["Name the metrics after the convention", "idle", "Ann", 960],
];

const endings = {
  waits: [tool("bash", { command: "aws s3 rm s3://depot-uploads --recursive --exclude 'keep/*'" }, "", { gated: true })],
  asks: [
    {
      ask: {
        type: "user_input",
        tool: "ask_user",
        args: { questions: [{ header: "Region", question: "Which regions?", options: [{ label: "eu-north" }] }] },
        reason: "Which regions?",
        timeout_ms: -1,
      },
    },
  ],
  works: [{ repeat: { times: 2000, rate: 4, steps: [{ say: "A sentence of a longer answer. " }] } }],
  idle: [say("Done. All tests pass.")],
};

const scenario = {
  model: "demo-1",
  provider: "script",
  prompts: [
    {
      match: "Uploads fail",
      steps: [
        ...found,
        tool("bash", { command: test }, ran, { gated: true, ...slowly }),
        say("The test passes twenty times under the race detector. The callers need no change."),
        usage(2300, 840, 0.031),
      ],
    },
    {
      match: "talks to the storage",
      steps: [
        tool("grep", { pattern: "s3\\.New", path: "." }, "upload/client.go:18: s3: s3.New(config),\n"),
        say("Only `upload.Client`, which `cmd/sync`, `cmd/import` and the web server share. It has no retries today."),
        usage(900, 60, 0.0041),
      ],
    },
    {
      match: "Rename Boat",
      steps: [
        say("`Boat` is used in 40 files of ten packages. I will rename the type first, then its receivers.\n\n"),
        ...forty.map(renamed),
        say("All 40 files compile, and no exported name of another package has changed."),
        usage(5200, 3100, 0.084),
      ],
    },
    ...others.map(([match, how]) => ({
      match,
      steps: [...(how === "waits" ? [] : [usage(800, 90, 0.0042)]), ...endings[how]],
    })),
  ],
};

const minutes = Object.fromEntries(others.map(([title, , , age]) => [title, age]));

/** age runs in the page. It gives sessions that were made a moment ago the age of real ones. */
function age(minutes) {
  const parse = JSON.parse;
  JSON.parse = (text, revive) => {
    const value = parse(text, revive);
    if (value?.type === "list") {
      for (const s of [value.sessions?.session, ...(value.sessions?.overview?.sessions ?? [])]) {
        if (minutes[s?.title])
          s.updated_at = new Date(Date.parse(s.updated_at) - 60_000 * minutes[s.title]).toISOString();
      }
    }
    return value;
  };
}

const folder = mkdtempSync(join(tmpdir(), "maestro-screens-"));
const script = join(folder, "scenario.json"); // each session reads it
writeFileSync(script, JSON.stringify(scenario));
process.on("exit", () => rmSync(folder, { recursive: true }));

/** begin starts a server with that many other sessions. */
async function begin(sessions = 7) {
  const workspace = join(tmpdir(), "depot"); // its name is shown
  mkdirSync(workspace, { recursive: true });
  await startServer([
    ...["--agent", `script:${script}`, "--workspace", workspace],
    ...["--connection-tokens", "optional", "--request-rate", "-1"],
  ]);
  for (const [i, [content, , displayName]] of others.slice(0, sessions).entries()) {
    const path = "/api/headless/sessions";
    const { state } = await server.call("POST", path, {
      sessionId: `other-${i}`,
      displayName,
      capabilities: { serverRequests: ["approval", "user_input"] },
    });
    const headers = { "X-Maestro-Headless-Connection-Id": state.connections[0].connection_id };
    await server.call("POST", `${path}/other-${i}/messages`, { type: "prompt", content }, headers);
    await server.call("POST", `${path}/other-${i}/disconnect`, {}, headers);
  }
}

/** enter opens the session for a person. */
async function enter(name, options = {}, link = undefined) {
  const p = await browser.open("about:blank", { locale: "en-GB", timezoneId: "UTC", ...options });
  await p.page.addInitScript(age, minutes);
  await p.page.addInitScript((name) => localStorage.setItem("maestro.name", name), name);
  await p.page.goto(link ?? (await server.link()));
  if (!link) await p.page.goto(`${server.url}/#session=${server.session}`);
  await composer(p).or(p.page.locator(".closed")).first().waitFor();
  return p;
}

async function enterAsBen(options) {
  const { token } = await server.call("POST", `/api/headless/sessions/${server.session}/shares`, {
    role: "controller",
    label: "Ben",
  });
  return enter("Ben", options, `${server.url}/#share=${token}`);
}

async function prompt(p, text) {
  await composer(p).fill(text);
  await button(p, "Send").click();
}

/** ask brings a page to the question whether the tests may run. */
async function ask(p) {
  await prompt(p, "Which code talks to the storage?");
  await p.page.locator(".end").waitFor();
  await server.call("PATCH", `/api/headless/sessions/${server.session}`, { title: "Retry failed uploads" });
  await prompt(p, asked);
  await p.page.locator(".question button.primary:enabled").waitFor();
}

/** run brings a page to the moment when the tests run and have written their first lines. */
async function run(p) {
  await ask(p);
  await button(p, "Allow").click();
  await p.page.locator(".output", { hasText: "TestPutRetries" }).waitFor();
}

/** screens brings the server and a page of a desk or a phone to each of the main screens. */
export const screens = {
  async start(options) {
    await begin();
    return enter("Ann", options);
  },
  async running(options) {
    await begin();
    const ann = await enter("Ann", options);
    await run(ann);
    return ann;
  },
  async question(options) {
    await begin();
    const ann = await enter("Ann", options);
    await ask(ann);
    if (options.isMobile) {
      await ann.page.getByLabel("Reason, sent").fill("Ten times are enough");
      await ann.page.setViewportSize({ width: 360, height: 380 }); // the keyboard is open
    }
    return ann;
  },
  async watching(options) {
    await begin();
    const ann = await enter("Ann");
    await ask(ann);
    const ben = await enterAsBen(options);
    await button(ann, "Allow").click();
    await ben.page.locator(".output", { hasText: "TestPutRetries" }).waitFor();
    return ben;
  },
  async takeover(options) {
    await begin();
    const ann = await enter("Ann", options);
    await run(ann);
    const ben = await enterAsBen();
    await button(ben, "Take over").click();
    await ann.page.locator(".closed", { hasText: "Ben" }).waitFor();
    await button(ann, "Ask for control").click();
    await ben.page.getByText("asks for control").waitFor();
    await ann.page.locator(".closed", { hasText: "You have asked" }).waitFor();
    return ann;
  },
  async changes(options) {
    await begin();
    const ann = await enter("Ann", options);
    await prompt(ann, "Rename Boat to Vessel in the whole module.");
    await ann.page.locator(".end").waitFor();
    await ann.page.locator(".transcript").focus();
    await ann.page.keyboard.press("k");
    await ann.page.locator("button.line", { hasText: forty[3] }).click();
    await ann.page.locator(".diff").first().waitFor();
    return ann;
  },
  async dashboard(options) {
    await begin(others.length);
    const ann = await enter("Ann", options);
    await prompt(ann, asked);
    await ann.page.locator(".question").waitFor();
    await ann.page.goto(`${server.url}/#dashboard`);
    await ann.page.locator(".tile", { hasText: asked.slice(0, 20) }).waitFor();
    await ann.page.waitForFunction((n) => document.querySelectorAll(".tile").length === n, others.length + 1);
    return ann;
  },
  async reconnecting(options) {
    await begin();
    const ann = await enter("Ann", options);
    await run(ann);
    await ann.context.setOffline(true);
    await ann.page.locator(".strip", { hasText: "Reconnecting" }).waitFor();
    await composer(ann).fill("When it passes, open a pull request.");
    return ann;
  },
};
