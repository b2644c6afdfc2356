import {
  defineComponent,
  getCurrentInstance,
  getCurrentScope,
  h,
  onMounted,
  onScopeDispose,
  type PropType,
  type ShallowRef,
  shallowReadonly,
  shallowRef,
  watch,
} from "vue";
import type { Client, Status } from "./api.js";
import { callsOf, follow, type PushCalls } from "./push.js";

export interface Push extends PushCalls {
  /** Undefined until it is known, and while a server renders the page. */
  status: Readonly<ShallowRef<Status | undefined>>;
  /** Message of the last call if it failed, for developers. Choose the text for people by `reason` of the result. */
  problem: Readonly<ShallowRef<string | undefined>>;
}

/** Status of this browser, the last failure, and the calls that change them. Create the client once, outside components. */
export function usePush(bellwire: Client): Push {
  const status = shallowRef<Status>();
  const problem = shallowRef<string>();
  let stop = () => {};
  const start = () => {
    stop = follow(bellwire, (now) => void (status.value = now));
  };
  // In a component after hydration, so that the first rendering equals the server's. Elsewhere, as in a store, at once.
  if (getCurrentInstance()) onMounted(start);
  else if (typeof document !== "undefined") start();
  if (getCurrentScope()) onScopeDispose(() => stop());
  const calls = callsOf(bellwire, (result) => {
    status.value = result.status;
    problem.value = result.ok ? undefined : result.message;
  });
  return { status: shallowReadonly(status), problem: shallowReadonly(problem), ...calls };
}

/** Component of an element, whose code is loaded once it is mounted. Attributes such as `layout` pass to the element. */
function componentOf(tag: string) {
  return defineComponent({
    props: { client: { type: Object as PropType<Client>, required: true } },
    setup(props) {
      const element = shallowRef<HTMLElement & { client?: Client }>();
      const start = async () => {
        const { ui } = await import("./ui.js");
        ui(props.client);
        if (element.value) element.value.client = props.client;
      };
      onMounted(start);
      watch(() => props.client, start);
      return () => h(tag, { ref: element });
    },
  });
}

export const BellwirePrompt = componentOf("bellwire-prompt");
export const BellwireBell = componentOf("bellwire-bell");
export const BellwirePreferences = componentOf("bellwire-preferences");
