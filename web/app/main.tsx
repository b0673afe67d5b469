import "./style.css";
import "./lists.css";
import "./files.css";
import "./terminal.css";
import "./time.css";
import "./dashboard.css";
import { render } from "preact";
import { App } from "./app";
import { start } from "./store";

render(<App />, document.getElementById("app")!);
void start();
