import type { AppResponse } from "../../api/types";
import type { Draft } from "../../lib/draft";
import type { Check } from "./load";

/** Properties of each part of the composer. */
export interface PartProps {
  app: AppResponse;
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  check: Check;
}

/** Members whose faults are shown at fields that no closed `<details>` hides. */
export const FIELDS = /^\/(content\/(title|body|url|actions\/\d+\/url)|send_at|timezone)$/;

/** Fault of the member that the pointer names. */
export const faultAt = ({ problem }: Check, pointer: string): string | undefined => problem?.fault(pointer);
