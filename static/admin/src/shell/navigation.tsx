import { useFilters } from "../lib/url";
import { pageOf, PAGES } from "../pages";

export function Navigation() {
  const { here, link } = useFilters();
  const current = pageOf(here);
  return (
    <nav class="pages" aria-label="Pages">
      <ul>
        {PAGES.map((page) => (
          <li key={page.path}>
            <a href={link(page.path)} aria-current={page === current ? "page" : undefined} data-later={page.today ? "" : undefined}>
              {page.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
