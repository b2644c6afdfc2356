import { useEffect, useState } from "preact/hooks";
import type { Draft } from "../../lib/campaign-draft";
import { hasWork, presetChanges, presetOf, PRESETS, type CampaignPreset } from "../../lib/campaign-presets";
import { useFilters } from "../../lib/url";
import { Card } from "../../ui/card";
import { Dialog } from "../../ui/dialog";
import { Marked } from "../../ui/marked";
import "./campaigns.css";

interface PresetsProps {
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
}

/** Predefined campaigns to start from. A link to the form may name one in `preset`. */
export function PresetsCard({ draft, change }: PresetsProps) {
  const { filters, change: changeAddress } = useFilters();
  const [asked, ask] = useState<CampaignPreset>();
  const [filled, setFilled] = useState("");
  const fill = (preset: CampaignPreset) => {
    change(presetChanges(preset, draft));
    setFilled(preset.title);
    ask(undefined);
  };
  const choose = (preset: CampaignPreset) => (hasWork(draft) ? ask(preset) : fill(preset));
  const linked = presetOf(filters.preset);
  useEffect(() => {
    if (!linked) return;
    choose(linked);
    // A reload must not fill the form again.
    changeAddress({ preset: undefined }, true);
  }, [linked]);
  return (
    <Card title="Start from">
      <ul class="preset-list">
        {PRESETS.map((preset) => (
          <li key={preset.id} class="row">
            <button type="button" data-preset={preset.id} onClick={() => choose(preset)}>
              {preset.title}
            </button>
            <span class="fine">
              <Marked text={preset.about} />
            </span>
          </li>
        ))}
      </ul>
      <p class="fine" role="status">
        {filled && `“${filled}” filled in name, content and schedule. You can change all of it.`}
      </p>
      {asked && (
        <Dialog title="Replace what you wrote?" onClose={() => ask(undefined)}>
          <p>“{asked.title}” replaces name, content, variants and schedule of this draft.</p>
          <p class="row end">
            <button type="button" onClick={() => ask(undefined)}>
              Cancel
            </button>
            <button type="button" class="primary" id="replace-draft" onClick={() => fill(asked)}>
              Replace
            </button>
          </p>
        </Dialog>
      )}
    </Card>
  );
}
