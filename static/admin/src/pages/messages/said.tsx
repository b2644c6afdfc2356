import type { AppResponse, MessageResponse, Notification, MessageContentResponse } from "../../api/types";
import { languageWords } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { Shown } from "../../ui/shown";
import { loadSaid } from "./load";
import "./messages.css";

/** Content of a sent message, as far as the user may read it. */
export function SaidCard({ app, message }: { app: AppResponse; message: MessageResponse }) {
  const { link } = useFilters();
  const said = useResource(`said ${message.id}`, (stop) => loadSaid(app.id, message.id, stop), { everyS: 3_600 });
  const sender = useMay("sender", app.id);
  const isShown = Boolean(said.known.value?.value.content);
  return (
    <Card
      title="Content"
      aside={
        isShown && sender.may ? (
          <span class="row fine">
            <a id="like" href={link("/messages/new", { like: message.id })}>
              Copy as message
            </a>
            <a id="like-campaign" href={link("/campaigns/-new", { like: message.id })}>
              Copy as campaign
            </a>
          </span>
        ) : undefined
      }
    >
      <Shown of={said} what="the content">
        {(said) => <What said={said} message={message} />}
      </Shown>
    </Card>
  );
}

function What({ said, message }: { said: MessageContentResponse; message: MessageResponse }) {
  const { content, payload, template } = said;
  if (said.content_state === "deleted")
    return <p class="soft">The content was deleted after every delivery had ended.</p>;
  if (said.content_state === "withheld") return <p class="soft">{whyNot(message)}</p>;
  if (content) return <Written content={content} />;
  if (template) {
    const others = Object.keys(template.locales ?? {});
    return (
      <>
        <p class="soft">
          Rendered from a template for each recipient
          {others.length > 0 && `, also in ${new Intl.ListFormat("en").format(others.map(languageWords))}`}:
        </p>
        <Written content={template.content} />
      </>
    );
  }
  return (
    <>
      <p class="soft">A payload for the site’s own handler:</p>
      <pre>
        <code>{typeof payload === "string" ? payload : JSON.stringify(payload)}</code>
      </pre>
    </>
  );
}

function whyNot({ to }: MessageResponse): string {
  if ("topic" in to || "all" in to || "segment" in to) {
    return "Content for more than ten subscriptions is visible to the role sender on this app. Content for fewer is not shown: it may be a one-time code.";
  }
  return "Content for single recipients is not shown: it may be a one-time code.";
}

export function Written({ content }: { content: Notification }) {
  const links = [
    ["Link", content.url],
    ["Icon", content.icon],
    ["Image", content.image],
    ["Badge", content.badge],
  ] as const;
  return (
    <>
      <p class="words">
        <strong>{content.title}</strong>
        {content.body && `\n${content.body}`}
      </p>
      <dl class="facts fine">
        {links.map(
          ([word, url]) =>
            url && (
              <>
                <dt>{word}</dt>
                <dd>{url}</dd>
              </>
            ),
        )}
        {content.actions?.map(({ action, title, url }) => (
          <>
            <dt>Button</dt>
            <dd>
              {title} (<code>{action}</code>){url && `, ${url}`}
            </dd>
          </>
        ))}
      </dl>
    </>
  );
}
