import { useEffect } from "preact/hooks";
import { useLocation, useRoute } from "preact-iso";
import { useResource } from "../../lib/resource";
import { to } from "../../lib/url";
import { useHere } from "../../shell/context";
import { Shown } from "../../ui/shown";
import { findApp } from "./load";

/** Redirect from `/subscribers/sub_…` to the page of the app that has the subscription. */
export default function AnySubscription() {
  const { params } = useRoute();
  const { apps, app } = useHere();
  const { route } = useLocation();
  const subscription = params.subscription ?? "";
  const among = app ? [app] : apps;
  const found = useResource(
    `app of ${subscription}`,
    async (stop) => ({ slug: await findApp(among, subscription, stop) }),
    { everyS: 3_600 },
  );
  const slug = found.known.value?.value.slug;
  useEffect(() => {
    if (slug) route(to(`/subscribers/${slug}/subscriptions/${subscription}`, { app: app?.slug }), true);
  }, [slug]);
  return (
    <Shown of={found} what="this subscription">
      {({ slug }) =>
        slug ? (
          <p class="loading">Found in {slug}…</p>
        ) : (
          <p class="refused">
            No app has a subscription <code>{subscription}</code>; it may have been deleted.
          </p>
        )
      }
    </Shown>
  );
}
