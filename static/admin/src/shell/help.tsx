import { ALL_PAGES } from "../pages";
import { Dialog } from "../ui/dialog";

const KEYS: readonly [string, string][] = [
  ["/", "Search; Ctrl+K also within fields"],
  ["j  k", "Next and previous row"],
  ["Enter", "Open the row"],
  ["n", "On Messages, Campaigns, Templates, Segments and Webhooks: create a new one"],
  ["Esc", "Close"],
  ["?", "This list"],
];

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
        {ALL_PAGES.map(({ letter, title, about }) => (
          <div key={letter}>
            <dt>
              <kbd>g</kbd> <kbd>{letter}</kbd>
            </dt>
            <dd>
              {title} <span class="fine">{about}</span>
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
