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

// Before the server has said who is logged in, the page shows the frame of index.html, which looks the same.
effect(() => {
  if (stage.value !== "starting") render(<App />, document.getElementById("app")!);
});
startNotifying();
void start();
