import "./style.css";
import icon from "./icon.svg";
import { render } from "preact";

render(<main><img src={icon} alt="" /><h1>Maestro</h1></main>, document.getElementById("app")!);
