import { useRef, useState } from "preact/hooks";
import { Changed } from "../api/edit";
import { refusal, type Refusal } from "../api/problem";

/** Something that is done once at a time, and may be refused. */
export function useAction<A extends unknown[]>(work: (...args: A) => Promise<void>) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Refusal>();
  const latest = useRef(work);
  latest.current = work;
  const run = async (...args: A): Promise<void> => {
    if (isBusy) return;
    setBusy(true);
    setProblem(undefined);
    try {
      await latest.current(...args);
    } catch (thrown) {
      if (thrown instanceof Changed) thrown.again = () => run(...args);
      setProblem(refusal(thrown));
    } finally {
      setBusy(false);
    }
  };
  return { run, isBusy, problem };
}
