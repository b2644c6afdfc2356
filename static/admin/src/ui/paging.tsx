interface Props {
  /** Beyond what the page lies that is shown; undefined: the first page. */
  after: string | undefined;
  /** Cursors of the previous and the next page. */
  sides: { previous: string | null | undefined; next: string | null | undefined } | undefined;
  /** The address of such a page. */
  to: (after: string | undefined) => string;
  older?: string;
}

/** Links to the pages of a list on both sides of the one that is shown. */
export function Paging({ after, sides, to, older = "Older" }: Props) {
  const { previous, next } = sides ?? {};
  if (!after && !next) return null;
  return (
    <p class="row">
      {after && <a href={to(undefined)}>Newest</a>}
      {previous && (
        <a id="newer" href={to(previous)}>
          Newer
        </a>
      )}
      {next && (
        <a id="older" href={to(next)}>
          {older}
        </a>
      )}
    </p>
  );
}
