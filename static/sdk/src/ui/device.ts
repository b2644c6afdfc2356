import type { Status } from "../api";

/** Action offered to the person: answer the question, or follow a guide. */
export type Way = "ask" | "install_share" | "install_more" | "install_update" | "in_app";

/** Browsers in apps. Web views on iPhones and iPads leave out the name of the browser. */
const APPS =
  /FBA[NV]|Instagram|\bLine\/|MicroMessenger|TikTok|musical_ly|Bytedance|Snapchat|Pinterest|LinkedInApp|Twitter|; wv\)|iP(hone|ad|od)(?!.*Safari\/)/;

/** Major and minor version of iOS. Newer ones freeze the system's in favour of Safari's. Unknown for other browsers on iPads. */
function iosVersion(agent: string): number {
  const found = [...agent.matchAll(/(?: OS|Version)[ /](\d+)[._](\d+)/g)].map(
    ([, major, minor]) => +major! * 100 + +minor!,
  );
  return Math.max(...found, 0);
}

/** Returns the way to notifications in this state. Undefined: there is none, or none is needed. */
export function wayOf(state: Status["state"], agent: string, isStandalone = false): Way | undefined {
  if (state === "unsubscribed") return "ask";
  if (state !== "not-installed" && state !== "unsupported") return;
  if (isStandalone) return "install_update";
  if (APPS.test(agent)) return "in_app";
  if (state === "unsupported") return;
  const version = iosVersion(agent);
  if (version && version < 1604) return "install_update";
  return version >= 2600 && /iPhone.*Version\//.test(agent) ? "install_more" : "install_share";
}
