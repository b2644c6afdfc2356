import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Notification } from "../../api/types";
import {
  characters,
  cutWords,
  hostOf,
  leftOut,
  PLATFORM_IDS,
  PLATFORMS,
  type PlatformId,
  type Visible,
} from "../../lib/platforms";

interface Props {
  said: Notification;
  /** First origin of the app. */
  site: string | undefined;
  /** Name of the site. */
  name: string;
}

/** The notification as five platforms draw it. Pictures are not loaded: this page talks to its own server alone. */
export function Previews(props: Props) {
  return (
    <section class="previews" aria-labelledby="previews">
      <h2 id="previews">Preview</h2>
      <div class="drawings">
        {PLATFORM_IDS.map((id) => (
          <Preview key={id} id={id} {...props} />
        ))}
      </div>
      <p class="fine">
        Approximate: systems and versions differ, and long texts are cut. Images are placeholders: this page loads
        nothing from other servers.
      </p>
    </section>
  );
}

function Preview({ id, ...props }: Props & { id: PlatformId }) {
  const { name, note } = PLATFORMS[id];
  const out = leftOut(id, props.said);
  const [cut, setCut] = useState<string>();
  return (
    <figure class="preview" data-platform={id}>
      <figcaption>
        <strong>{name}</strong>
      </figcaption>
      <Drawing id={id} {...props} onDrawn={setCut} />
      <p class="fine" data-part="left-out">
        {out.length > 0 && `Not shown: ${list(out)}. `}
        {note}
      </p>
      {cut && (
        <p class="fine" data-part="cut" data-tone="retrying">
          {cut}
        </p>
      )}
    </figure>
  );
}

const list = (items: readonly string[]) => new Intl.ListFormat("en", { type: "conjunction" }).format(items);

/** Measures how many characters of a text its element shows before the cut. */
function visible(element: HTMLElement | null, text: string): Visible {
  const of = characters(text);
  const node = element?.firstChild;
  if (!element || !(node instanceof Text) || text === "" || element.scrollHeight <= element.clientHeight + 1)
    return { shown: of, of };
  const bottom = element.getBoundingClientRect().top + element.clientHeight + 1;
  const range = document.createRange();
  range.setStart(node, 0);
  let [low, high] = [0, node.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    range.setEnd(node, middle);
    if (range.getBoundingClientRect().bottom > bottom) high = middle - 1;
    else low = middle;
  }
  return { shown: characters(text.slice(0, low)), of };
}

/** The drawing is decorative: its content is in the form. */
function Drawing({
  id,
  said,
  site,
  name,
  onDrawn,
}: Props & { id: PlatformId; onDrawn: (cut: string | undefined) => void }) {
  const [title, body] = [useRef<HTMLParagraphElement>(null), useRef<HTMLParagraphElement>(null)];
  useLayoutEffect(
    () => onDrawn(cutWords(visible(title.current, said.title), visible(body.current, said.body ?? ""))),
    [said.title, said.body, said.icon],
  );
  const { ownIcon, image, buttons } = PLATFORMS[id];
  const host = hostOf("/", site) || "your site";
  const shownButtons = (said.actions ?? []).slice(0, buttons);
  const icon = ownIcon ? (
    said.icon && <span class="icon own" />
  ) : (
    <span class="icon">{name.slice(0, 1).toUpperCase()}</span>
  );
  return (
    <div class="drawing" aria-hidden="true">
      {id === "android" && (
        <p class="bar-line">
          <span class="dot" data-own={said.badge ? "" : undefined} /> Chrome · {host} · now
        </p>
      )}
      {id === "chrome" && said.image && <ImageField url={said.image} site={site} />}
      <div class="text">
        {id !== "android" && icon}
        <div class="texts">
          {id === "ios" && <span class="now">now</span>}
          <p class="title" ref={title}>
            {said.title || "Title"}
          </p>
          {id === "ios" && <p class="from">from {name}</p>}
          {id === "safari" && <p class="from">{host}</p>}
          {(said.body || !said.title) && (
            <p class="body" ref={body}>
              {said.body || "Text"}
            </p>
          )}
          {id === "chrome" && <p class="from">{host}</p>}
          {id === "firefox" && <p class="from">via {host}</p>}
        </div>
        {id === "android" && icon}
      </div>
      {id === "android" && image && said.image && <ImageField url={said.image} site={site} />}
      {shownButtons.length > 0 && (
        <p class="answers">
          {shownButtons.map(({ title }, n) => (
            <span key={n}>{title || `Button ${n + 1}`}</span>
          ))}
        </p>
      )}
    </div>
  );
}

const ImageField = ({ url, site }: { url: string; site: string | undefined }) => (
  <span class="image">{hostOf(url, site) || "image"}</span>
);
