import { parameterFault, parametersFault } from "../../lib/link-parameters";
import { Card } from "../../ui/card";
import { Text } from "../composer/fields";
import type { PartProps } from "./composer";

/** Parameters of this campaign for the links of its notifications. */
export function LinksCard({ draft: { linkParameters }, change, problem }: PartProps) {
  return (
    <Card title="Links">
      <Text
        label="Link parameters"
        name="link-parameters"
        value={linkParameters}
        change={(linkParameters) => change({ linkParameters })}
        placeholder="utm_term=spring"
        rows={2}
        hint="name=value, one per line, optional. They are added to the link tags of the app, and replace those with the same name."
        fault={parameterFault(problem, "/link_parameters", linkParameters)}
        check={parametersFault(linkParameters)}
      />
    </Card>
  );
}
