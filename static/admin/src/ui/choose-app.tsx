import type { AppView } from "../api/types";
import { to } from "../lib/url";

/** For pages about one app, while none is chosen. `path` is the page; `what` begins a sentence: "Messages". */
export function ChooseApp({ apps, path, what }: { apps: readonly AppView[]; path: string; what: string }) {
  if (apps.length === 0) {
    return (
      <div class="empty">
        <p>There is no app yet. To make one:</p>
        <pre>
          <code>bellwire init shop --origin https://shop.example.com</code>
        </pre>
      </div>
    );
  }
  return (
    <div class="empty">
      <p>{what} are kept by app. Of which?</p>
      <ul class="list">
        {apps.map(({ id, slug, name }) => (
          <li key={id} data-row>
            <a href={to(path, { app: slug })}>{name}</a>
          </li>
        ))}
      </ul>
    </div>
  );
}
