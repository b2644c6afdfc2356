import { api, told } from "../../api/client";
import type { CheckResult } from "../../api/types";
import { grouped, HEALTH_WORDS, separated, state, titleOf } from "../../lib/checks";
import { useResource } from "../../lib/resource";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { Snippet } from "../../ui/copy";
import { Marked } from "../../ui/marked";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import "./checks.css";

const load = (signal: AbortSignal) => told(api.GET("/v1/checks", { signal }));

/** Checks of the installation: failures first, with the command that fixes each. */
export default function Checks() {
  const found = useResource("checks", load, { everyS: 120 });
  return (
    <>
      <Head title="Checks" lead="Set-up of this server, as bellwire doctor reports it.">
        <button type="button" id="check-again" disabled={found.isLoading.value} onClick={() => found.refresh()}>
          {found.isLoading.value ? "Checking…" : "Check again"}
        </button>
      </Head>
      <Shown of={found} what="the checks">
        {({ at, data }) => <Findings at={at} findings={data} />}
      </Shown>
    </>
  );
}

function Findings({ at, findings }: { at: string; findings: CheckResult[] }) {
  const { wrong, right } = grouped(findings);
  const { tone, words } = state(findings);
  return (
    <>
      <p class="verdict" id="checks-state">
        <Badge tone={tone}>{words}</Badge>{" "}
        <span class="fine">
          checked <Time at={at} />
        </span>
      </p>
      {wrong.length > 0 && (
        <ul class="findings">
          {wrong.map((finding) => (
            <li key={finding.check} class="card" data-health={finding.health}>
              <Wrong finding={finding} />
            </li>
          ))}
        </ul>
      )}
      {right.length > 0 && (
        <Card title="Passed">
          <ul class="right-ones">
            {right.map(({ check, detail }) => (
              <li key={check}>
                <Badge tone="accepted">{titleOf(check)}</Badge>
                <span>
                  <Marked text={separated(detail)} />
                </span>
              </li>
            ))}
          </ul>
        </Card>
      )}
    </>
  );
}

function Wrong({ finding: { check, health, detail, advice, line } }: { finding: CheckResult }) {
  const { word, tone } = HEALTH_WORDS[health];
  return (
    <>
      <header class="card-head">
        <h2>{titleOf(check)}</h2>
        <Badge tone={tone}>{word}</Badge>
      </header>
      <p>
        <Marked text={separated(detail)} />
      </p>
      {advice && (
        <p>
          <Marked text={advice} />
        </p>
      )}
      {line && <Snippet text={line} what="Command or setting" />}
    </>
  );
}
