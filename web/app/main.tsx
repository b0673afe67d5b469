import "./style.css";
import "./lists.css";
import "./long.css";
import { render } from "preact";
import { App } from "./app";
import { start } from "./store";

render(<App />, document.getElementById("app")!);
void start();
