import {
  createElement,
  type ForwardRefExoticComponent,
  forwardRef,
  type HTMLAttributes,
  type RefAttributes,
  useEffect,
  useImperativeHandle,
  useMemo,
  useRef,
  useState,
} from "react";
import type { Client, Status } from "./api.js";
import { callsOf, follow, type PushCalls } from "./push.js";
import type { BellwireBellElement, BellwirePreferencesElement, BellwirePromptElement, PromptLayout } from "./ui.js";

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

/** Properties of all components: the client, and attributes of the element. */
export interface ElementProps extends Omit<HTMLAttributes<HTMLElement>, "children" | "dangerouslySetInnerHTML"> {
  client: Client;
  /** Page that reports to the funnel name. By default the path, without parts that vary. */
  page?: string;
}

/** Component of an element, whose code is loaded once it is mounted. Its `ref` is the element. */
function componentOf<E extends HTMLElement & { client: Client | undefined }, P extends ElementProps = ElementProps>(
  tag: string,
) {
  // React 18 passes `ref` only by `forwardRef`.
  const component = forwardRef<E, ElementProps>(({ client, className, ...attributes }, ref) => {
    const element = useRef<E>(null);
    useImperativeHandle(ref, () => element.current!, []);
    useEffect(() => {
      void import("./ui.js").then(({ ui }) => {
        ui(client);
        if (element.current) element.current.client = client;
      });
    }, [client]);
    // React 18 would write `className` as it is.
    return createElement(tag, { class: className, ...attributes, ref: element });
  });
  component.displayName = tag;
  return component as unknown as ForwardRefExoticComponent<P & RefAttributes<E>>;
}

export const BellwirePrompt = componentOf<BellwirePromptElement, ElementProps & { layout?: PromptLayout }>(
  "bellwire-prompt",
);
export const BellwireBell = componentOf<BellwireBellElement, ElementProps & { corner?: string }>("bellwire-bell");
export const BellwirePreferences = componentOf<BellwirePreferencesElement>("bellwire-preferences");
