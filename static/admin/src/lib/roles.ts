import type { Role, SessionResponse } from "../api/types";

/** From the least to the greatest; each may do what those before it may. */
export const ROLES: readonly Role[] = ["viewer", "sender", "operator", "admin"];

/** Scope of a role: the app with that id, or (null) all apps and the server. */
export type Place = string | null;

/** Whether the user has this role, or a higher one, in that scope. A role for all apps applies to each. */
export function may(session: Pick<SessionResponse, "roles"> | null | undefined, role: Role, place: Place): boolean {
  const least = ROLES.indexOf(role);
  return !!session?.roles.some(
    (grant) => (grant.app == null || grant.app === place) && ROLES.indexOf(grant.role) >= least,
  );
}

/** Text for a user without permission. */
export const takes = (role: Role, place: Place): string =>
  `This requires the role ${role} ${place === null ? "for all apps" : "on this app"}.`;
