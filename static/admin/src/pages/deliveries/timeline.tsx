import type { Sentence } from "../../api/types";
import { clock } from "../../lib/clock";
import { chapters, parts, quoted, shortId, toneOf } from "../../lib/deliveries";
import { fullTime, relative, secondsTime } from "../../lib/format";
import { zone } from "../../lib/preferences";
import { useFilters } from "../../lib/url";
import { Marked } from "../../ui/marked";
import { Time } from "../../ui/numbers";

/** A sentence of the story, its times in the zone that was chosen, its ids as links. */
export function Told({ sentence }: { sentence: Sentence }) {
  const { link } = useFilters();
  const { text } = quoted(sentence);
  return (
    <>
      {parts(text).map((part, n) => {
        if (part.kind === "time") return <Time key={n} at={part.at} absolute />;
        if (part.kind === "text") return <Marked key={n} text={part.text} />;
        const page = part.kind === "message" ? "/messages" : "/subscribers";
        return (
          <a key={n} href={link(`${page}/${part.text}`)}>
            {shortId(part.text)}
          </a>
        );
      })}
    </>
  );
}

/** Past steps, current state and next step, in order with their times. */
export function Timeline({ story }: { story: readonly Sentence[] }) {
  const { past, present, next } = chapters(story);
  return (
    <ol class="timeline">
      {past.map((sentence, n) => (
        <Step key={`past ${n}`} sentence={sentence} when="past" />
      ))}
      {present.map((sentence, n) => (
        <Step key={`now ${n}`} sentence={sentence} when="now" />
      ))}
      {next.map((sentence, n) => (
        <Step key={`next ${n}`} sentence={sentence} when="next" />
      ))}
    </ol>
  );
}

function Step({ sentence, when }: { sentence: Sentence; when: "past" | "now" | "next" }) {
  const { words } = quoted(sentence);
  return (
    <li data-tone={toneOf(sentence)} data-when={when} data-code={sentence.code}>
      <p class="when">{sentence.at ? <Moment at={sentence.at} /> : when === "now" ? "now" : ""}</p>
      <div>
        <p>
          <Told sentence={sentence} />
        </p>
        {words && <blockquote>{words}</blockquote>}
      </div>
    </li>
  );
}

/** Seconds matter here: both when and how long ago. */
function Moment({ at }: { at: string }) {
  const [time, now] = [new Date(at), clock.shown.value];
  return (
    <time dateTime={at} title={fullTime(time, zone.value)}>
      {secondsTime(time, now, zone.value)}
      <span class="fine"> {relative(time, now)}</span>
    </time>
  );
}
