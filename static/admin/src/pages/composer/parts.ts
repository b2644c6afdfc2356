import type { AppView } from "../../api/types";
import type { Draft } from "../../lib/draft";
import type { Check } from "./load";

/** What each part of the composer is given. */
export interface PartProps {
  app: AppView;
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  check: Check;
}

/** What is wrong with the member that the pointer names. */
export const faultAt = ({ problem }: Check, pointer: string): string | undefined => problem?.fault(pointer);
