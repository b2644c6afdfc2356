import { render } from "preact";
import "../../shared/tokens.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/controls.css";
import "./styles/narrow.css";
import { Admin } from "./shell/admin";
import { clock } from "./lib/clock";

clock.run();
render(<Admin />, document.getElementById("page") as HTMLElement);
