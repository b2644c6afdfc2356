import type { AppResponse } from "../../api/types";
import { useHere, useMay } from "../../shell/context";
import { Form } from "../../ui/form";
import { letIn } from "./load";

/** A page of its own subscribes: this one's policy lets nothing register a worker. */
const pageOf = (app: AppResponse) => `/try/?app=${encodeURIComponent(app.slug)}`;

interface Props {
  app: AppResponse;
  isDone: boolean;
  onChanged: () => unknown;
}

export function BrowserStep({ app, isDone, onChanged }: Props) {
  const { refreshApps } = useHere();
  const operator = useMay("operator", app.id);
  const isLetIn = app.origins.includes(location.origin);
  if (!window.isSecureContext) return <p>Browsers allow web push on HTTPS and on localhost only. Open this page at such an address.</p>;
  if (!isLetIn && !operator.may) return <p class="fine">The app does not let in pages of {location.origin} yet. {operator.why}</p>;
  if (!isLetIn) {
    return (
      <Form
        button="Let them in"
        id="let-in"
        work={async () => {
          await letIn(app, location.origin);
          await refreshApps();
          await onChanged();
        }}
      >
        <p>
          {app.name} does not let in pages of {location.origin} yet, and a page there subscribes this browser. It becomes one of the app’s origins; you can take it away again in the settings.
        </p>
      </Form>
    );
  }
  return (
    <>
      <p>{isDone ? "It is subscribed, and gets what you send to everybody, too." : "A small window asks your browser for leave, and subscribes it as a visitor’s would be."}</p>
      <p>
        <a
          id="this-browser"
          class={isDone ? "" : "button"}
          href={pageOf(app)}
          target="bellwire-this-browser"
          onClick={(event) => {
            // Where no window may be opened, the link itself leads there.
            if (window.open(pageOf(app), "bellwire-this-browser", "popup,width=480,height=560")) event.preventDefault();
          }}
        >
          {isDone ? "Its subscription" : "Subscribe this browser"}
        </a>
      </p>
    </>
  );
}
