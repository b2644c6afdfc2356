import type { Role, Session } from "../api/types";

/** From the least to the greatest; each may do what those before it may. */
export const ROLES: readonly Role[] = ["viewer", "sender", "operator", "admin"];

/** Where a role has to hold: on the app of that id, or (null) for all apps and the server itself. */
export type Place = string | null;

/** Whether somebody has a role, or a greater one, there. A role for all apps holds on each. */
export function may(session: Pick<Session, "roles"> | null | undefined, role: Role, place: Place): boolean {
  const least = ROLES.indexOf(role);
  return !!session?.roles.some((grant) => (grant.app == null || grant.app === place) && ROLES.indexOf(grant.role) >= least);
}

/** What to say to somebody who may not. */
export const takes = (role: Role, place: Place): string => `This takes the role ${role} ${place === null ? "for all apps" : "on this app"}.`;
