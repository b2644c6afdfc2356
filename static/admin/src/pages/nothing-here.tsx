import { useFilters } from "../lib/url";
import { Head } from "../ui/card";

/** For addresses that are no page's. */
export default function NothingHere() {
  const { link } = useFilters();
  return (
    <>
      <Head title="Page not found" lead="No page has this address." />
      <p>
        <a href={link("/")}>Go to the overview</a>
      </p>
    </>
  );
}
