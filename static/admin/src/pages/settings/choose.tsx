import { to } from "../../lib/url";
import { useHere } from "../../shell/context";

/** For what there is once an app: which one? */
export function ChooseApp({ path, what }: { path: string; what: string }) {
  const { apps } = useHere();
  if (apps.length === 0) {
    return (
      <div class="empty">
        <p>There is no app yet.</p>
        <p>
          <a href={to("/first-run")}>Begin with the first one</a>
        </p>
      </div>
    );
  }
  return (
    <div class="empty">
      <p>{what} Of which?</p>
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
