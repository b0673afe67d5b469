import "./style.css";
import "./lists.css";
import "./begin.css";
import "./plan.css";
import "./settings.css";
import "./files.css";
import "./terminal.css";
import "./time.css";
import "./dashboard.css";
import "./long.css";
import { effect } from "@preact/signals";
import { render } from "preact";
import { App } from "./app";
import { startNotifying } from "./notify";
import { stage, start } from "./store";

// Until the page knows whose it is, it stays as index.html has it: a frame that looks the same.
effect(() => {
  if (stage.value !== "starting") render(<App />, document.getElementById("app")!);
});
startNotifying();
void start();
