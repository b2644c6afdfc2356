import type { Refusal } from "../../api/problem";
import type { PromptSettings } from "../../api/types";
import { languageWords } from "../../lib/format";
import {
  LAYOUTS,
  TEXTS,
  variantFaults,
  VARIANTS_MAX,
  withText,
  withVariant,
  type VariantDraft,
} from "../../lib/prompt";
import { Choice, Text } from "../composer/fields";

interface Props {
  /** Settings that a variant replaces in part. */
  prompt: PromptSettings;
  variants: readonly VariantDraft[];
  change: (variants: VariantDraft[]) => void;
  /** Language whose texts are edited. */
  language: string;
  problem: Refusal | undefined;
}

/** Variants of the prompt for a comparison. */
export function Variants({ variants, change, ...shared }: Props) {
  const faults = variantFaults(variants);
  return (
    <>
      <p class="fine">
        {variants.length === 0
          ? "Variants with other texts or another form show which prompt gets more subscribers."
          : "Each browser gets one of these variants, by weight, and keeps it. Empty texts are those of the prompt."}
      </p>
      {variants.map((variant, n) => (
        <Variant
          key={n}
          {...shared}
          n={n}
          variant={variant}
          checked={faults[n]}
          change={(changes) => change(variants.map((it, at) => (at === n ? { ...it, ...changes } : it)))}
          remove={() => change(variants.filter((_, at) => at !== n))}
        />
      ))}
      {variants.length < VARIANTS_MAX && (
        <p>
          <button type="button" id="add-variant" onClick={() => change(withVariant(variants))}>
            {variants.length === 0 ? "Add variants (A/B test)" : "Add a variant"}
          </button>
        </p>
      )}
    </>
  );
}

interface VariantProps extends Pick<Props, "prompt" | "language" | "problem"> {
  n: number;
  variant: VariantDraft;
  /** Faults that the page found. */
  checked: { name: string | undefined; weight: string | undefined } | undefined;
  change: (changes: Partial<VariantDraft>) => void;
  remove: () => void;
}

function Variant({ n, variant, checked, change, remove, prompt, language, problem }: VariantProps) {
  const { name, weight, layout, texts } = variant;
  const fault = (member: string) => problem?.fault(`/variants/${n}/${member}`);
  const textFault = (text: string) => fault(`texts/${language}/${text}`);
  return (
    <div class="window" role="group" aria-label={`Variant ${n + 1}`} data-variant={n}>
      <div class="pair">
        <Text
          label="Name"
          name={`variant-name-${n}`}
          value={name}
          change={(name) => change({ name })}
          max={64}
          fault={fault("name")}
          check={checked?.name}
        />
        <Text
          label="Weight"
          name={`variant-weight-${n}`}
          value={weight}
          change={(weight) => change({ weight })}
          max={4}
          fault={fault("weight")}
          check={checked?.weight}
        />
        <Choice
          label="Form"
          name={`variant-layout-${n}`}
          value={layout ?? ""}
          choices={[["", "As the prompt"], ...LAYOUTS]}
          choose={(layout) => change({ layout: (layout || null) as VariantDraft["layout"] })}
          fault={fault("layout")}
        />
      </div>
      <details class="more" open={TEXTS.some(([text]) => textFault(text))}>
        <summary>Texts in {languageWords(language)}</summary>
        <div class="form">
          {TEXTS.map(([text, label]) => (
            <Text
              key={text}
              label={label}
              name={`variant-${text}-${n}`}
              value={texts[language]?.[text] ?? ""}
              change={(value) => change({ texts: withText(texts, language, text, value) })}
              placeholder={prompt.texts[language]?.[text] ?? ""}
              max={300}
              fault={textFault(text)}
            />
          ))}
        </div>
      </details>
      <p>
        <button type="button" class="plain" onClick={remove}>
          Remove<span class="hidden"> variant {name}</span>
        </button>
      </p>
    </div>
  );
}
