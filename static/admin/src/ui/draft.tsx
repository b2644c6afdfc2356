import "./form.css";
import { Fragment, type ComponentChildren } from "preact";
import type { Begun } from "../lib/begin";
import { Failed, Forbidden, Loading } from "./shown";

interface Props<T> {
  of: Begun<T>;
  /** Name of the data in sentences: "the caps". */
  what: string;
  children: (begun: T) => ComponentChildren;
}

/** Form of a draft, which begins anew with each edition. */
export function Draft<T>({ of: { begun, problem, edition, again }, what, children }: Props<T>) {
  if (problem?.isForbidden) return <Forbidden problem={problem} what={what} />;
  if (problem) return <Failed problem={problem} what={what} retry={again} />;
  if (!begun) return <Loading what={what} />;
  return <Fragment key={edition}>{children(begun)}</Fragment>;
}

/** Notice below a form. It stays on the page, so that screen readers announce its text. */
export function Notice({ children }: { children: ComponentChildren }) {
  return (
    <p role="status" class="done">
      {children}
    </p>
  );
}
