// Follows the Hecate events of a server until a number of runs have ended, reads each of
// these runs again as a list and as a stream, and checks what it got. It reconnects when
// the server goes away.
//
//	node consumer.mjs URL RUNS [SECRET...]
//
// HECATE_TOKEN is the token, HECATE_SECONDS the time limit (60). It prints a report in
// JSON, and exits with 1 if the report has problems.

const [base, wanted, ...secrets] = process.argv.slice(2);
const headers = process.env.HECATE_TOKEN ? { authorization: `Bearer ${process.env.HECATE_TOKEN}` } : {};
const deadline = Date.now() + 1000 * (process.env.HECATE_SECONDS || 60);
const terminal = new Set(['run.finished', 'run.failed', 'run.cancelled']);
const report = { events: 0, runs: 0, connections: 0, repeated: 0, problems: [] };
const ids = new Map(); // texts by event id
const runs = new Map(); // by run id: { task, texts, ended }

const problem = (text) => report.problems.length < 20 && report.problems.push(text);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// frames yields { id, data } of an event stream.
async function* frames(path, lastID, signal) {
  const last = lastID === undefined ? {} : { 'last-event-id': `${lastID}` };
  const answer = await fetch(base + path, { headers: { ...headers, ...last, accept: 'text/event-stream' }, signal });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  report.connections++;
  let rest = '';
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + piece).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const of = (name) => part.split('\n').find((l) => l.startsWith(`${name}: `))?.slice(name.length + 2);
      if (of('event')) problem(`an event has a name: ${part}`);
      if (of('data')) yield { id: Number(of('id')), data: of('data') };
    }
  }
}

// retry calls read until it returns true. Errors of connections are expected.
async function retry(what, read) {
  for (;;) {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), Math.max(deadline - Date.now(), 0));
    try {
      if (await read(abort.signal)) return true;
    } catch (err) {
      if (Date.now() > deadline) return problem(`${what}: time is up: ${err.message}`), false;
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
    if (Date.now() > deadline) return problem(`${what}: time is up`), false;
    await sleep(100);
  }
}

// take checks one event of the feed of all runs.
function take(text) {
  const e = JSON.parse(text);
  if (ids.has(e.event_id)) {
    report.repeated++;
    return ids.get(e.event_id) === text || problem(`one id, two events: ${text}`);
  }
  ids.set(e.event_id, text);
  report.events++;
  const run = runs.get(e.run_id) ?? { task: e.task_id, texts: [], ended: false };
  runs.set(e.run_id, run);
  if (e.sequence !== run.texts.length) problem(`sequence ${e.sequence} where ${run.texts.length} is due: ${text}`);
  if (run.ended && !e.type.startsWith('gap.')) problem(`event after the end of its run: ${text}`);
  if (secrets.some((secret) => text.includes(secret))) problem(`secret: ${text}`);
  run.texts.push(text);
  if (terminal.has(e.type)) report.runs += run.ended ? 0 : ((run.ended = true), 1);
}

// same compares a run that was read again.
function same(what, run, texts) {
  if (texts.join('\n') !== run.texts.slice(0, texts.length).join('\n') || texts.length < run.texts.length)
    problem(`${what} differs from the feed: ${texts.length} and ${run.texts.length} events`);
}

let cursor;
await retry('feed', async (signal) => {
  for await (const { id, data } of frames('/hecate/v1/events/stream', cursor, signal)) {
    if (!(id > (cursor ?? 0))) problem(`id ${id} after ${cursor}`);
    cursor = id;
    take(data);
    if (report.runs >= Number(wanted)) return true;
  }
});

for (const [id, run] of [...runs].filter(([, run]) => run.ended)) {
  const path = `/hecate/v1/tasks/${run.task}/runs/${id}/events`;
  const listed = [];
  await retry(`list of ${id}`, async (signal) => {
    const after = listed.length > 0 ? `&after_sequence=${listed.length - 1}` : '';
    const body = await (await fetch(`${base}${path}?limit=100${after}`, { headers, signal })).text();
    const page = JSON.parse(body);
    const texts = run.texts.slice(listed.length, listed.length + page.data.length);
    if (!body.startsWith(`{"object":"list","data":[${texts.join(',')}]`)) problem(`other bytes in the list of ${id}`);
    listed.push(...texts);
    return !page.has_more;
  });
  same(`list of ${id}`, run, listed);
  const streamed = [];
  await retry(`stream of ${id}`, async (signal) => {
    const last = streamed.length > 0 ? streamed.length - 1 : undefined;
    for await (const { id, data } of frames(path, last, signal)) if (streamed.push(data) !== id + 1) problem(`id ${id} of ${data}`);
    return streamed.length >= run.texts.length;
  });
  same(`stream of ${id}`, run, streamed);
}

console.log(JSON.stringify(report));
process.exitCode = report.problems.length > 0 ? 1 : 0;
