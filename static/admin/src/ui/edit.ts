import { useMemo } from "preact/hooks";
import { Edit, type Edited } from "../api/edit";

/** Resource at the start of an edit; read again for each key. */
export function useEdit<T extends object>(about: Edited<T>, key = ""): Edit<T> {
  const edit = useMemo(() => new Edit(about), [key]);
  edit.about = about;
  return edit;
}
