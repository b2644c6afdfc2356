import { signal } from "@preact/signals";
import { api, told, whenSignedOut } from "./api/client";
import { live } from "./api/live";
import { forgetFigures } from "./lib/resource";
import type { Session } from "./api/types";

/** Who is signed in. Undefined: not known yet; null: nobody, and signing in leads back to where one was. */
export const session = signal<Session | null | undefined>(undefined);

/** The ways in, as `POST /v1/session` takes them. */
export type SignIn = { email: string; password: string } | { api_key: string } | { link: string; new_password?: string };

export async function lookWhoIsIn(): Promise<void> {
  session.value = await told(api.GET("/v1/session"));
}

export async function signIn(body: SignIn): Promise<void> {
  session.value = await told(api.POST("/v1/session", { body }));
}

export async function signOut(): Promise<void> {
  await told(api.DELETE("/v1/session"));
  leave();
}

function leave(): void {
  session.value = null;
  live.listenTo(null);
  // Whoever signs in next may be somebody else.
  forgetFigures();
}

whenSignedOut(leave);
