import type { ComponentChildren } from "preact";
import type { AppResponse } from "../api/types";
import { ChooseApp } from "./choose-app";
import { useHere } from "./context";

interface Props {
  /** Reason why the page needs an app. */
  what: string;
  children: (app: AppResponse) => ComponentChildren;
}

/** Content of the chosen app, or the choice of an app. */
export function OfApp({ what, children }: Props) {
  const { app, apps } = useHere();
  return app ? <>{children(app)}</> : <ChooseApp apps={apps} what={what} />;
}

/** The same of the app that the address names, by its id or slug. */
export function OfNamedApp({
  name,
  children,
}: {
  name: string | undefined;
  children: (app: AppResponse) => ComponentChildren;
}) {
  const { apps } = useHere();
  const app = apps.find(({ id, slug }) => id === name || slug === name);
  if (app) return <>{children(app)}</>;
  return (
    <p class="refused">
      There is no app <code>{name}</code> that you have access to.
    </p>
  );
}
