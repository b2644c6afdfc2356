import type { Client, Result, Status } from "@bellwire/web";
import { useEffect, useState } from "react";

/** How this browser stands (undefined until it is known), what went wrong last, and what can be done. */
export function usePush(bellwire: Client) {
  const [status, setStatus] = useState<Status>();
  const [problem, setProblem] = useState<string>();

  useEffect(() => {
    let mounted = true;
    void bellwire.status().then((now) => mounted && setStatus(now));
    const stop = bellwire.on("change", setStatus);
    return () => {
      mounted = false;
      stop();
    };
  }, [bellwire]);

  // No call rejects: that people say no, or a server is down, are values.
  const taken = async (asked: Promise<Result>) => {
    const result = await asked;
    setStatus(result.status);
    setProblem(result.ok ? undefined : result.message);
  };

  return {
    status,
    problem,
    // To be called from a click, before any `await`: browsers ask only then.
    subscribe: (topics: string[]) => taken(bellwire.subscribe({ topics })),
    unsubscribe: () => taken(bellwire.unsubscribe()),
    setTopics: (topics: string[]) => taken(bellwire.setTopics(topics)),
    login: (userId: string, userToken: string) => taken(bellwire.login(userId, userToken)),
    logout: () => taken(bellwire.logout()),
  };
}
