import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

/** A part of a page with a name of its own. */
export function Card({
  title,
  aside,
  class: more = "",
  children,
}: {
  title: string;
  aside?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}) {
  const name = useId();
  return (
    <section class={`card ${more}`} aria-labelledby={name}>
      <header class="card-head">
        <h2 id={name}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

/** The head of a page: its title, and the question that it answers. */
export function Head({
  title,
  lead,
  children,
}: {
  title: string;
  lead?: ComponentChildren;
  children?: ComponentChildren;
}) {
  return (
    <div class="head">
      <div>
        <h1>{title}</h1>
        {lead && <p class="lead">{lead}</p>}
      </div>
      {children}
    </div>
  );
}

/** A fact by its name, in a `<dl>`. */
export function Fact({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </div>
  );
}
