import { useMemo } from "preact/hooks";
import { Edit, type Edited } from "../api/edit";

/** What somebody is about to change, as it was when this was first shown; anew for each key. */
export function useEdit<T extends object>(about: Edited<T>, key = ""): Edit<T> {
  const edit = useMemo(() => new Edit(about), [key]);
  edit.about = about;
  return edit;
}
