import type { Way } from "./device";
import { icon, make } from "./dom";
import type { Texts } from "./texts";

const SHARE = "M12 3v12M8 7l4-4 4 4M6 11H5v10h14V11h-1";

/** Steps that lead to notifications where the browser cannot ask. */
export function guide(way: Exclude<Way, "ask">, t: Texts): HTMLElement {
  if (way === "in_app" || way === "install_update") return make("p", "guide", {}, t[way]);
  const share = make("li", "", {}, `${t[way]} `, way === "install_share" && icon(SHARE));
  return make("ol", "guide", {}, share, make("li", "", {}, t.install_add), make("li", "", {}, t.install_open));
}
