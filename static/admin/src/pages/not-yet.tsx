import { useFilters } from "../lib/url";
import { pageOf } from "../pages";
import { Head } from "../ui/card";

/** For addresses whose page is yet to come, and for those that are none: what leads on from here. */
export default function NotYet() {
  const { here, link } = useFilters();
  const page = pageOf(here);
  if (!page?.today) {
    return (
      <>
        <Head title="Nothing here" lead="No page has this address." />
        <p>
          <a href={link("/")}>To the overview</a>
        </p>
      </>
    );
  }
  return (
    <>
      <Head title={page.title} lead={page.question} />
      <div class="empty">
        <p>This page is not there yet. Until it is, the same is to be had by</p>
        <pre>
          <code>{page.today}</code>
        </pre>
      </div>
    </>
  );
}
