import "./style.css";
import "./lists.css";
import "./begin.css";
import "./plan.css";
import "./settings.css";
import "./files.css";
import "./terminal.css";
import { render } from "preact";
import { App } from "./app";
import { startNotifying } from "./notify";
import { start } from "./store";

render(<App />, document.getElementById("app")!);
startNotifying();
void start();
