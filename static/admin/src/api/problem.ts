import type { Problem } from "./types";

/** Why a request came to nothing, in words. */
export class Refusal extends Error {
  /** HTTP status; 0: no answer came. */
  readonly status: number;
  /** Names this kind of problem for programs. */
  readonly code: string;
  /** Each thing that is wrong with the request, and where. */
  readonly faults: { where: string; detail: string }[];
  /** Seconds to wait before it is tried again. */
  readonly retryAfterS: number | undefined;
  /** Id of the request in the server's log. */
  readonly requestId: string | undefined;

  constructor(status: number, body: Partial<Problem> | undefined, headers?: Headers) {
    super(
      body?.detail ??
        (status === 0 ? "The server does not respond." : `The server responded ${status} without a reason.`),
    );
    this.status = status;
    this.code = body?.code ?? (status === 0 ? "offline" : "unknown");
    this.faults = (body?.errors ?? []).map(({ pointer, parameter, header, detail }) => ({
      where: pointer ?? parameter ?? header ?? "",
      detail,
    }));
    const wait = Number(headers?.get("retry-after"));
    this.retryAfterS = wait > 0 ? wait : undefined;
    this.requestId = body?.request_id ?? undefined;
  }

  /** Whether a user with another role would have permission. */
  get isForbidden(): boolean {
    return this.status === 403;
  }

  /** Error text of the member that the pointer names, for its field. */
  fault(pointer: string): string | undefined {
    return this.faults.find((fault) => fault.where === pointer)?.detail;
  }
}

/** Faults that the message does not state already, each once, with the name of the member instead of a JSON pointer. */
export function listed({ message, faults }: Pick<Refusal, "message" | "faults">): { where: string; detail: string }[] {
  const named = faults.map(({ where, detail }) => ({ where: where.replace(/^\//, "").replaceAll("/", ", "), detail }));
  return named.filter(
    ({ where, detail }, n) =>
      !message.includes(detail) && named.findIndex((other) => other.where === where && other.detail === detail) === n,
  );
}

/** Number of fields with faults, if each fault is at a field that the pattern matches. Undefined: show the refusal in full. */
export function fieldsOf(problem: Pick<Refusal, "faults"> | undefined, at: RegExp): number | undefined {
  const pointers = new Set(problem?.faults.map(({ where }) => where));
  return pointers.size > 0 && [...pointers].every((pointer) => at.test(pointer)) ? pointers.size : undefined;
}

/** Converts an error into a refusal: a network failure becomes one, and a bug of the page is thrown again. */
export function refusal(thrown: unknown): Refusal {
  if (thrown instanceof Refusal) return thrown;
  // `fetch` rejects with a TypeError when there is no answer, and Firefox with an AbortError when the page is left in the middle of one.
  const isCutOff = thrown instanceof TypeError || (thrown instanceof DOMException && thrown.name === "AbortError");
  if (isCutOff) return new Refusal(0, undefined);
  throw thrown;
}
