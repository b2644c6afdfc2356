import { signal } from "@preact/signals";
import { api, told, whenSignedOut } from "./api/client";
import { live } from "./api/live";
import { Refusal } from "./api/problem";
import { forgetFigures } from "./lib/resource";
import type { SessionResponse } from "./api/types";

/** Signed-in user. Undefined: not known yet; null: signed out, with a return to the same address after signing in. */
export const session = signal<SessionResponse | null | undefined>(undefined);

/** The ways in, as `POST /v1/session` takes them. */
export type SignIn =
  | { email: string; password: string }
  | { api_key: string }
  | { link: string; new_password?: string }
  | { oidc: true };

export async function lookWhoIsIn(): Promise<void> {
  session.value = await told(api.GET("/v1/session"));
}

export async function signIn(body: SignIn): Promise<void> {
  const answer = await told(api.POST("/v1/session", { body }));
  session.value = "options" in answer ? await confirm(answer.options) : answer;
}

/** The second factor of those who have one: the browser asks for a finger, a face, a PIN or a key. */
async function confirm(options: object): Promise<SessionResponse> {
  const asked = PublicKeyCredential.parseRequestOptionsFromJSON(options as PublicKeyCredentialRequestOptionsJSON);
  const passkey = await navigator.credentials.get({ publicKey: asked }).catch(() => null);
  if (!(passkey instanceof PublicKeyCredential)) {
    throw new Refusal(0, {
      code: "no_passkey",
      detail: "No passkey was received. Sign in again, and confirm when the browser asks.",
    });
  }
  const answer = await told(api.POST("/v1/session", { body: { passkey: passkey.toJSON() as never } }));
  if ("options" in answer) throw new Error("a passkey is asked for once");
  return answer;
}

export async function signOut(): Promise<void> {
  await told(api.DELETE("/v1/session"));
  leave();
}

function leave(): void {
  session.value = null;
  live.listenTo(null);
  // The next user may be another one.
  forgetFigures();
}

whenSignedOut(leave);
