import { useEffect, useRef } from "preact/hooks";
import { useFilters } from "../lib/url";
import { GROUPS, pageOf, PAGES, type Page } from "../pages";

export function Navigation() {
  const { here, link } = useFilters();
  const current = pageOf(here);
  const pages = useRef<HTMLElement>(null);
  // On a phone the row of pages is wider than the screen.
  useEffect(() => {
    pages.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  const entry = (page: Page) => (
    <li key={page.path}>
      <a href={link(page.path)} aria-current={page === current ? "page" : undefined}>
        {page.title}
      </a>
    </li>
  );
  return (
    <nav class="pages" ref={pages} aria-label="Pages">
      <ul>
        {PAGES.slice(0, 1).map(entry)}
        {GROUPS.map(({ title, pages }) => (
          <li key={title} class="group">
            <span id={`group-${title}`}>{title}</span>
            <ul aria-labelledby={`group-${title}`}>{pages.map(entry)}</ul>
          </li>
        ))}
        {current && (
          <li class="group">
            <a href={`/docs/guides/${current.guide}`} target="_blank" rel="noopener">
              Guide to this page
            </a>
          </li>
        )}
      </ul>
    </nav>
  );
}
