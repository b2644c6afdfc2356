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
  if (!window.isSecureContext) return <p>Web push requires HTTPS or localhost. Open this page at such an address.</p>;
  if (!isLetIn && !operator.may)
    return (
      <p class="fine">
        The app does not allow the origin {location.origin} yet. {operator.why}
      </p>
    );
  if (!isLetIn) {
    return (
      <Form
        button="Allow this origin"
        id="let-in"
        work={async () => {
          await letIn(app, location.origin);
          await refreshApps();
          await onChanged();
        }}
      >
        <p>
          A page at {location.origin} subscribes this browser, and {app.name} does not allow that origin yet. This adds
          it to the app’s origins; you can remove it in the settings.
        </p>
      </Form>
    );
  }
  return (
    <>
      <p>
        {isDone
          ? "This browser is subscribed and gets messages to all subscribers."
          : "A small window asks for permission and subscribes this browser."}
      </p>
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
          {isDone ? "Show its subscription" : "Subscribe this browser"}
        </a>
      </p>
    </>
  );
}
