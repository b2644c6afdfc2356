import { createElement, useEffect, useMemo, useRef, useState } from "react";
import type { Client, Status } from "./api.js";
import { callsOf, follow, type PushCalls } from "./push.js";
import type { PromptLayout } from "./ui.js";

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

/** Component of an element, whose code is loaded once it is mounted. */
function componentOf<A extends object>(tag: string) {
  return function BellwireElement({ client, ...attributes }: A & { client: Client }) {
    const element = useRef<HTMLElement & { client?: Client }>(null);
    useEffect(() => {
      void import("./ui.js").then(({ ui }) => {
        ui(client);
        if (element.current) element.current.client = client;
      });
    }, [client]);
    return createElement(tag, { ref: element, ...attributes });
  };
}

export const BellwirePrompt = componentOf<{ layout?: PromptLayout }>("bellwire-prompt");
export const BellwireBell = componentOf<{ corner?: string }>("bellwire-bell");
export const BellwirePreferences = componentOf<object>("bellwire-preferences");
