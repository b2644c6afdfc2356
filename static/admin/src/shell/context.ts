import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { AppResponse, Role, SessionResponse } from "../api/types";
import { may, takes } from "../lib/roles";

/** Context of every page. */
export interface Here {
  session: SessionResponse;
  /** The apps that may be looked at. */
  apps: readonly AppResponse[];
  /** The one that the page is about; undefined: all of them. */
  app: AppResponse | undefined;
  /** Asks for the apps anew: one was made, changed or deleted. */
  refreshApps: () => Promise<void>;
}

export const HereContext = createContext<Here | undefined>(undefined);

export function useHere(): Here {
  const here = useContext(HereContext);
  if (!here) throw new Error("only within the shell");
  return here;
}

/** Whether something may be offered, and if not, which role could. `place` is an app's id; null: the server itself. */
export function useMay(role: Role, place: string | null): { may: boolean; why: string } {
  const { session } = useHere();
  return { may: may(session, role, place), why: takes(role, place) };
}
