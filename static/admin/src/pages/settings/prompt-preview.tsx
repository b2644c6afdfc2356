import { useEffect, useRef, useState } from "preact/hooks";
import type { PromptSettings } from "../../api/types";
import { Segments } from "../composer/fields";

type PromptElement = HTMLElement & { preview: (settings: PromptSettings) => Promise<void> };
/** Module of this server, which pages of sites load, too. */
const MODULE = "/sdk/ui.js";

interface Props {
  settings: PromptSettings;
  language: string;
  /** Names of the variants. */
  names: readonly string[];
  /** Position of the variant that is shown. Undefined: the prompt. */
  chosen: number | undefined;
  choose: (variant: number | undefined) => void;
}

/** The prompt or one of its variants, as visitors see it. */
export function Preview({ settings, language, names, chosen, choose }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const [isLost, lose] = useState(false);
  const shown = JSON.stringify(settings);
  useEffect(() => {
    const show = async () => {
      const { define } = (await import(/* @vite-ignore */ MODULE)) as { define: () => void };
      define();
      await place.current?.querySelector<PromptElement>("bellwire-prompt")?.preview(settings);
    };
    show().catch(() => lose(true));
  }, [shown, language]);
  return (
    <section class="preview-of-prompt" aria-label="Preview">
      {names.length > 0 && (
        <Segments
          legend="Preview of"
          name="preview"
          value={chosen !== undefined && chosen < names.length ? String(chosen) : ""}
          choices={[["", "Prompt"], ...names.map((name, n): [string, string] => [String(n), name])]}
          choose={(n) => choose(n === "" ? undefined : Number(n))}
        />
      )}
      <div class="stage" ref={place} lang={language}>
        <bellwire-prompt />
      </div>
      {isLost && <p class="fine">The preview could not be loaded.</p>}
    </section>
  );
}

declare module "preact" {
  namespace JSX {
    interface IntrinsicElements {
      "bellwire-prompt": object;
    }
  }
}
