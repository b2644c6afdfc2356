import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useFilters } from "../../lib/url";
import { useHere } from "../../shell/context";
import { Head } from "../../ui/card";
import { Apps } from "./apps";
import { Attention } from "./attention";
import { Audit } from "./audit";
import { Hours } from "./hours";
import { Keys } from "./keys";
import { Prompt } from "./prompt";
import "./settings.css";
import { Team } from "./team";
import { You } from "./you";

interface Part {
  path: string;
  title: string;
  component: ComponentType;
}

const PARTS: readonly Part[] = [
  { path: "/settings", title: "Open actions", component: Attention },
  { path: "/settings/apps", title: "Apps", component: Apps },
  { path: "/settings/keys", title: "Keys", component: Keys },
  { path: "/settings/prompt", title: "Prompt", component: Prompt },
  { path: "/settings/hours", title: "Quiet hours", component: Hours },
  { path: "/settings/team", title: "Team", component: Team },
  { path: "/settings/you", title: "Your account", component: You },
  { path: "/settings/audit", title: "Audit log", component: Audit },
];

/** Settings: apps, keys and team. */
export default function Settings() {
  const { here, link } = useFilters();
  const { app } = useHere();
  const part = PARTS.find(({ path }) => path === here);
  const Shown = part?.component;
  const tabs = useRef<HTMLElement>(null);
  // On a phone the row of tabs is wider than the screen.
  useEffect(() => tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [here]);
  return (
    <>
      <Head title="Settings" lead="Apps, keys, prompt, quiet hours, team and audit log." />
      <nav class="tabs" ref={tabs} aria-label="Settings">
        <ul>
          {PARTS.map(({ path, title }) => (
            <li key={path}>
              <a href={link(path)} aria-current={path === here ? "page" : undefined}>
                {title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      {Shown ? (
        // Another app's forms are other forms.
        <div class="part" key={`${here} ${app?.id ?? ""}`}>
          <Shown />
        </div>
      ) : (
        <p>This settings page does not exist.</p>
      )}
    </>
  );
}
