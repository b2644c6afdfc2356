import type { ComponentChildren } from "preact";
import type { AppView } from "../api/types";
import { ChooseApp } from "./choose-app";
import { useHere } from "./context";

interface Props {
  /** Says why there has to be an app. */
  what: string;
  children: (app: AppView) => ComponentChildren;
}

/** What is kept by app: of the one that is chosen, else the choice. */
export function OfApp({ what, children }: Props) {
  const { app, apps } = useHere();
  return app ? <>{children(app)}</> : <ChooseApp apps={apps} what={what} />;
}
