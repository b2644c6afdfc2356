import { useState } from "preact/hooks";
import type { AppResponse, TemplateCheckRequest } from "../../api/types";
import { useResource } from "../../lib/resource";
import { Card } from "../../ui/card";
import { TopicField } from "../composer/audience";
import { Choice, Segments } from "../composer/fields";
import { loadSegments } from "../segments/load";
import { AudienceTrial } from "./trial";

const KINDS = [
  ["all", "All subscribers"],
  ["topic", "Topic"],
  ["segment", "Segment"],
] as const;

/** Tries it on all whom a message would reach. */
export function AudienceCard({ app, body }: { app: AppResponse; body: Omit<TemplateCheckRequest, "to"> }) {
  const [kind, choose] = useState<"all" | "topic" | "segment">("all");
  const [name, setName] = useState("");
  const to = kind === "all" ? { all: true } : { [kind]: name };
  return (
    <Card title="Test with an audience">
      <Segments
        legend="Audience"
        name="trial-audience"
        value={kind}
        choices={KINDS}
        choose={(kind) => (setName(""), choose(kind))}
      />
      {kind === "topic" && <TopicField app={app} topic={name} choose={setName} fault={undefined} />}
      {kind === "segment" && <SegmentField app={app} segment={name} choose={setName} />}
      {kind === "all" || name ? (
        <AudienceTrial app={app} body={{ ...body, to }} />
      ) : (
        <p class="soft">Choose an audience.</p>
      )}
    </Card>
  );
}

function SegmentField({
  app,
  segment,
  choose,
}: {
  app: AppResponse;
  segment: string;
  choose: (segment: string) => void;
}) {
  const stored = useResource(`segments ${app.id} all`, (stop) => loadSegments(app.id, undefined, stop, 250), {
    everyS: 300,
  });
  const names = (stored.known.value?.value.segments ?? []).map(({ name }) => [name, name] as const);
  return (
    <Choice
      label="Segment"
      name="trial-segment"
      value={segment}
      choices={[["", "Choose one"], ...names]}
      choose={choose}
    />
  );
}
