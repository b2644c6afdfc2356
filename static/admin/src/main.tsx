import { render } from "preact";
import "../../shared/tokens.css";
import "./style.css";
import { Admin } from "./shell/admin";
import { clock } from "./lib/clock";

clock.run();
render(<Admin />, document.getElementById("page") as HTMLElement);
