import { useEffect, useRef } from "preact/hooks";
import { useFilters } from "../lib/url";
import { pageOf, PAGES } from "../pages";

export function Navigation() {
  const { here, link } = useFilters();
  const current = pageOf(here);
  const pages = useRef<HTMLElement>(null);
  // On a phone the pages stand in a row that is longer than the screen.
  useEffect(() => {
    pages.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  return (
    <nav class="pages" ref={pages} aria-label="Pages">
      <ul>
        {PAGES.map((page) => (
          <li key={page.path}>
            <a href={link(page.path)} aria-current={page === current ? "page" : undefined}>
              {page.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
