import type { Changed } from "../api/edit";

/** The other user's version, with two actions: start again from it, or overwrite it. */
export function Conflict({ problem }: { problem: Changed }) {
  const overwrite = (event: MouseEvent) => {
    problem.accept();
    // Within a form the button hands it in once more, with what stands there now.
    if (!(event.currentTarget as HTMLButtonElement).form) void problem.again?.();
  };
  return (
    <div class="refused conflict" role="alert">
      <p>{problem.message}</p>
      <details>
        <summary>Show their version</summary>
        <dl>
          {problem.differs.map(({ member, theirs }) => (
            <div key={member}>
              <dt>{member}</dt>
              <dd>
                {theirs === undefined ? (
                  <span class="soft">nothing</span>
                ) : typeof theirs === "object" ? (
                  <pre tabIndex={0}>{JSON.stringify(theirs, null, 2)}</pre>
                ) : (
                  String(theirs)
                )}
              </dd>
            </div>
          ))}
        </dl>
      </details>
      <p class="row">
        <button type="button" id="take-theirs" onClick={() => void problem.reload()}>
          Discard mine and use their version
        </button>
        <button type="submit" class="grave" id="overwrite" onClick={overwrite}>
          {problem.verb}
        </button>
      </p>
    </div>
  );
}
