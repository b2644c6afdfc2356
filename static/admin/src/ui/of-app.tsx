import type { ComponentChildren } from "preact";
import type { AppView } from "../api/types";
import { to } from "../lib/url";
import { useHere } from "../shell/context";

interface Props {
  /** The page that asks. */
  path: string;
  /** What to say where several apps could be meant. */
  question: string;
  children: (app: AppView) => ComponentChildren;
}

/** What is kept by app: of the one that is chosen, else the choice. */
export function OfApp({ path, question, children }: Props) {
  const { app, apps } = useHere();
  if (app) return <>{children(app)}</>;
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
      <p>{question}</p>
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
