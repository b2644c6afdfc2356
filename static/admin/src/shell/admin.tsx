import { useEffect, useState } from "preact/hooks";
import { LocationProvider, useLocation } from "preact-iso";
import { refusal, type Refusal } from "../api/problem";
import { BASE } from "../lib/url";
import { lookWhoIsIn, session } from "../session";
import { Failed } from "../ui/shown";
import { Invitation, SignInPage } from "../pages/sign-in";
import { Shell } from "./shell";

/** The whole page: for a signed-in user at the current address; for others the sign-in form at the same address. */
export function Admin() {
  return (
    <LocationProvider scope={BASE}>
      <Door />
    </LocationProvider>
  );
}

function Door() {
  const { path } = useLocation();
  const [problem, setProblem] = useState<Refusal>();
  const look = () => {
    setProblem(undefined);
    lookWhoIsIn().catch((thrown) => {
      const why = refusal(thrown);
      if (why.status !== 401) setProblem(why);
    });
  };
  useEffect(look, []);
  if (path === `${BASE}/invite`) return <Invitation />;
  if (session.value === null) return <SignInPage />;
  if (session.value) return <Shell session={session.value} />;
  if (problem) return <main class="door">{<Failed problem={problem} what="who is signed in" retry={look} />}</main>;
  return <main class="door" aria-busy="true" />;
}
