import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useFilters } from "../../lib/url";
import { SETTINGS } from "../../pages";
import { useHere } from "../../shell/context";
import { Head } from "../../ui/card";
import { Apps } from "./apps";
import { Attention } from "./attention";
import { Audit } from "./audit";
import { Hours } from "./hours";
import { Keys } from "./keys";
import { Measurement } from "./measurement";
import { Prompt } from "./prompt";
import "./settings.css";
import { Team } from "./team";
import { You } from "./you";

const COMPONENTS: Record<string, ComponentType> = {
  "/settings": Attention,
  "/settings/apps": Apps,
  "/settings/keys": Keys,
  "/settings/prompt": Prompt,
  "/settings/hours": Hours,
  "/settings/measurement": Measurement,
  "/settings/team": Team,
  "/settings/you": You,
  "/settings/audit": Audit,
};

/** Settings: apps, keys and team. */
export default function Settings() {
  const { here, link } = useFilters();
  const { app } = useHere();
  const Shown = COMPONENTS[here];
  const tabs = useRef<HTMLElement>(null);
  // On a phone the row of tabs is wider than the screen.
  useEffect(
    () => tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }),
    [here],
  );
  return (
    <>
      <Head title="Settings" lead="Apps, keys, prompt, quiet hours, measurement, team and audit log." />
      <nav class="tabs" ref={tabs} aria-label="Settings">
        <ul>
          {SETTINGS.map(({ path, title }) => (
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
