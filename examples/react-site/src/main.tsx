import { init, type Client } from "@bellwire/web";
import { BellwireBell, BellwirePreferences, BellwirePrompt, usePush } from "@bellwire/web/react";
import { StrictMode, useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";

const post = (path: string, body: object = {}) =>
  fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

function Shop({ bellwire, userId }: { bellwire: Client; userId: string | null }) {
  const push = usePush(bellwire);
  const [user, setUser] = useState(userId);
  const [problem, setProblem] = useState("");

  const login = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const response = await post("/api/login", Object.fromEntries(new FormData(event.currentTarget)));
    if (!response.ok) return setProblem("Name and password do not match.");
    const { userId, userToken } = await response.json();
    setProblem("");
    setUser(userId);
    await push.login(userId, userToken);
  };
  const logout = async () => {
    // First of all, so that nothing more for this person appears here, whatever becomes of the request.
    await push.logout();
    await post("/api/logout");
    setUser(null);
  };
  const sendCode = async () => setProblem((await post("/api/code")).ok ? "" : "The code could not be sent.");

  return (
    <main>
      <h1>
        Demo shop <BellwireBell client={bellwire} />
      </h1>
      <BellwirePrompt client={bellwire} />
      {user ? (
        <p id="account">
          <button id="code" onClick={sendCode}>Send me a code</button>
          <button id="log-out" onClick={logout}>Log out</button>
        </p>
      ) : (
        <form id="login" onSubmit={login}>
          <label>Name <input name="user" autoComplete="username" required /></label>
          <label>Password <input name="password" type="password" autoComplete="current-password" required /></label>
          <button id="log-in">Log in</button>
        </form>
      )}
      <BellwirePreferences client={bellwire} />
      {/* Below what is clicked, lest it move while somebody aims at it. */}
      <p id="problem" role="alert">{problem || push.problem}</p>
    </main>
  );
}

// Whom the session cookie knows; nobody, if there is none. `undefined` (the backend is down) changes nothing in this browser, where `null`
// would end what belongs to somebody who has left.
const me: { userId: string; userToken: string } | null | undefined =
  await fetch("/api/me").then((response) => (response.ok ? response.json() : null), () => undefined);

// Once for the whole page. On each visit this also repairs what a new key or the browser made stale; it asks nobody for anything.
const bellwire = init({
  app: "shop",
  server: "http://localhost:8787",
  ...(me !== undefined && { userId: me?.userId ?? null }),
  ...(me && { userToken: me.userToken }),
});
createRoot(document.getElementById("root")!).render(<StrictMode><Shop bellwire={bellwire} userId={me?.userId ?? null} /></StrictMode>);
