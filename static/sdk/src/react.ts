import { useEffect, useMemo, useState } from "react";
import type { Client, Status } from "./api.js";
import { callsOf, follow, type PushCalls } from "./push.js";

export interface Push extends PushCalls {
  /** Undefined until it is known, and while a server renders the page. */
  status: Status | undefined;
  /** Message of the last call if it failed, for developers. Choose the text for people by `reason` of the result. */
  problem: string | undefined;
}

/** Status of this browser, the last failure, and the calls that change them. Create the client once, outside components. */
export function usePush(bellwire: Client): Push {
  const [status, setStatus] = useState<Status>();
  const [problem, setProblem] = useState<string>();
  useEffect(() => follow(bellwire, setStatus), [bellwire]);
  const calls = useMemo(() => {
    return callsOf(bellwire, (result) => {
      setStatus(result.status);
      setProblem(result.ok ? undefined : result.message);
    });
  }, [bellwire]);
  return { status, problem, ...calls };
}
