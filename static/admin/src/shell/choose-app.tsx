import type { AppResponse } from "../api/types";
import { to, useFilters } from "../lib/url";

/** Placeholder of pages about one app while none is chosen. `what`: the reason. */
export function ChooseApp({ apps, what }: { apps: readonly AppResponse[]; what: string }) {
  const { here } = useFilters();
  if (apps.length === 0) {
    return (
      <div class="empty">
        <p>There is no app yet.</p>
        <p>
          <a href={to("/first-run")}>Create the first app</a>
        </p>
      </div>
    );
  }
  return (
    <div class="empty">
      <p>{what} Choose an app:</p>
      <ul class="list">
        {apps.map(({ id, slug, name }) => (
          <li key={id} data-row>
            <a href={to(here, { app: slug })}>{name}</a>
          </li>
        ))}
      </ul>
    </div>
  );
}
