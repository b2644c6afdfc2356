import { useEffect, useRef, useState } from "preact/hooks";
import { lazy, Route, Router, useLocation } from "preact-iso";
import { live } from "../api/live";
import type { AppResponse, SessionResponse } from "../api/types";
import { appsOf, chosen } from "../apps";
import { clock } from "../lib/clock";
import { asksSearch, isOurs, Keys, step, type Wish } from "../lib/keys";
import { may } from "../lib/roles";
import { useResource } from "../lib/resource";
import { BASE, useFilters } from "../lib/url";
import { FIRST_RUN, pageOf } from "../pages";
import { Time } from "../ui/numbers";
import { Shown } from "../ui/shown";
import { HereContext } from "./context";
import { Help } from "./help";
import { Navigation } from "./navigation";
import { Top } from "./top";

// A page's code comes with its first visit; later pages are added here and in `pages.ts`.
const Overview = lazy(() => import("../pages/overview/page"));
const Messages = lazy(() => import("../pages/messages/list"));
const MessagePage = lazy(() => import("../pages/messages/message"));
const Composer = lazy(() => import("../pages/composer/page"));
const Campaigns = lazy(() => import("../pages/campaigns/page"));
const CampaignPage = lazy(() => import("../pages/campaigns/campaign"));
const CampaignComposer = lazy(() => import("../pages/campaigns/composer"));
const Calendar = lazy(() => import("../pages/calendar/page"));
const Templates = lazy(() => import("../pages/templates/page"));
const TemplatePage = lazy(() => import("../pages/templates/template"));
const Deliveries = lazy(() => import("../pages/deliveries/page"));
const DeliveryPage = lazy(() => import("../pages/deliveries/delivery"));
const Lanes = lazy(() => import("../pages/lanes/list"));
const LanePage = lazy(() => import("../pages/lanes/lane"));
const DeadLetters = lazy(() => import("../pages/dead-letters/page"));
const DeadLetterPage = lazy(() => import("../pages/dead-letters/letter"));
const Subscribers = lazy(() => import("../pages/subscribers/page"));
const PersonPage = lazy(() => import("../pages/subscribers/person"));
const AnySubscription = lazy(() => import("../pages/subscribers/any"));
const Segments = lazy(() => import("../pages/segments/page"));
const SegmentPage = lazy(() => import("../pages/segments/segment"));
const Frequency = lazy(() => import("../pages/frequency/page"));
const Webhooks = lazy(() => import("../pages/webhooks/page"));
const WebhookPage = lazy(() => import("../pages/webhooks/webhook"));
const WebhookRequestPage = lazy(() => import("../pages/webhooks/request"));
const Transfers = lazy(() => import("../pages/transfers/page"));
const Policies = lazy(() => import("../pages/policies/page"));
const PolicyPage = lazy(() => import("../pages/policies/editor"));
const Settings = lazy(() => import("../pages/settings/page"));
const Checks = lazy(() => import("../pages/checks/page"));
const FirstRun = lazy(() => import("../pages/first-run/page"));
const NothingHere = lazy(() => import("../pages/nothing-here"));

/** Scope of the event stream: the chosen app, or all apps of the user's roles. Without permission the page polls each minute. */
function streamFor(session: SessionResponse, app: AppResponse | undefined): string | null {
  if (app && may(session, "viewer", app.id)) return `/v1/apps/${app.id}/events/stream`;
  return session.roles.length > 0 ? "/v1/events/stream" : null;
}

/** Everything around a page. */
export function Shell({ session }: { session: SessionResponse }) {
  const apps = useResource("apps", (stop) => appsOf(session, stop), { everyS: 300 });
  return (
    <Shown of={apps} what="your apps">
      {(known) => <Frame session={session} apps={known} refreshApps={apps.refresh} />}
    </Shown>
  );
}

function Frame({
  session,
  apps,
  refreshApps,
}: {
  session: SessionResponse;
  apps: AppResponse[];
  refreshApps: () => Promise<void>;
}) {
  const { filters, go, here } = useFilters();
  const app = chosen(apps, filters.app);
  const [isHelpOpen, showHelp] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  const stream = streamFor(session, app);

  useEffect(() => live.listenTo(stream), [stream]);
  useTitle(here);
  useFirstRun(session, apps, here);
  useKeys({ help: () => showHelp(true), search: () => search.current?.focus(), go });

  return (
    <HereContext.Provider value={{ session, apps, app, refreshApps }}>
      <div class="frame">
        <a class="skip" href="#main">
          Skip to the page
        </a>
        <Top search={search} onHelp={() => showHelp(true)} />
        <Navigation />
        <main id="main" tabIndex={-1}>
          <EndsSoon session={session} />
          {filters.app && !app ? (
            <p class="refused">
              There is no app <code>{filters.app}</code> that you have access to. Choose another app above.
            </p>
          ) : (
            <Router>
              <Route path={BASE} component={Overview} />
              <Route path={`${BASE}/messages`} component={Messages} />
              <Route path={`${BASE}/messages/new`} component={Composer} />
              <Route path={`${BASE}/messages/:message`} component={MessagePage} />
              <Route path={`${BASE}/campaigns`} component={Campaigns} />
              {/* No slug begins with a hyphen. */}
              <Route path={`${BASE}/campaigns/-new`} component={CampaignComposer} />
              <Route path={`${BASE}/campaigns/:campaign`} component={CampaignPage} />
              <Route path={`${BASE}/campaigns/:campaign/edit`} component={CampaignComposer} />
              <Route path={`${BASE}/calendar`} component={Calendar} />
              <Route path={`${BASE}/templates`} component={Templates} />
              <Route path={`${BASE}/templates/:template`} component={TemplatePage} />
              <Route path={`${BASE}/deliveries`} component={Deliveries} />
              <Route path={`${BASE}/deliveries/:app/:message/:subscription`} component={DeliveryPage} />
              <Route path={`${BASE}/push-services`} component={Lanes} />
              <Route path={`${BASE}/push-services/:lane`} component={LanePage} />
              <Route path={`${BASE}/lanes`} component={Lanes} />
              <Route path={`${BASE}/lanes/:lane`} component={LanePage} />
              <Route path={`${BASE}/dead-letters`} component={DeadLetters} />
              <Route path={`${BASE}/dead-letters/:letter`} component={DeadLetterPage} />
              <Route path={`${BASE}/subscribers`} component={Subscribers} />
              <Route path={`${BASE}/subscribers/:subscription`} component={AnySubscription} />
              <Route path={`${BASE}/subscribers/:app/users/:user`} component={PersonPage} />
              <Route path={`${BASE}/subscribers/:app/subscriptions/:subscription`} component={PersonPage} />
              <Route path={`${BASE}/segments`} component={Segments} />
              <Route path={`${BASE}/segments/:segment`} component={SegmentPage} />
              <Route path={`${BASE}/frequency`} component={Frequency} />
              <Route path={`${BASE}/webhooks`} component={Webhooks} />
              {/* No id begins with a hyphen: `-new`. */}
              <Route path={`${BASE}/webhooks/:webhook`} component={WebhookPage} />
              <Route path={`${BASE}/webhooks/:webhook/:request`} component={WebhookRequestPage} />
              <Route path={`${BASE}/transfers`} component={Transfers} />
              <Route path={`${BASE}/policies`} component={Policies} />
              <Route path={`${BASE}/policies/:place/:name`} component={PolicyPage} />
              <Route path={`${BASE}/settings/:part?`} component={Settings} />
              <Route path={`${BASE}/checks`} component={Checks} />
              <Route path={`${BASE}/first-run`} component={FirstRun} />
              <Route default component={NothingHere} />
            </Router>
          )}
        </main>
      </div>
      {isHelpOpen && <Help onClose={() => showHelp(false)} />}
    </HereContext.Provider>
  );
}

/** Time before the end of a session at which a notice appears. */
const SOON_MS = 600_000;

function EndsSoon({ session }: { session: SessionResponse }) {
  const ends = new Date(session.expires_at);
  if (ends.getTime() - clock.shown.value.getTime() > SOON_MS) return null;
  return (
    <p class="stale" role="status">
      Your session ends at <Time at={ends} absolute />, twelve hours after it began. Sign in again then; you return to
      this page.
    </p>
  );
}

/** The window's title, and the focus, which screen readers follow, go with the page. */
function useTitle(here: string): void {
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${pageOf(here)?.title ?? "Page not found"} · Bellwire`;
    if (!isFirst.current) document.getElementById("main")?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [here]);
}

/** Redirects users with permission to create the first app to the first run; they may leave it. */
function useFirstRun(session: SessionResponse, apps: readonly AppResponse[], here: string): void {
  const { route } = useLocation();
  const [isEmpty] = useState(apps.length === 0 && may(session, "operator", null));
  useEffect(() => {
    if (isEmpty && here === "/") route(`${BASE}${FIRST_RUN.path}`, true);
  }, [isEmpty]);
}

function useKeys(wishes: { help: () => void; search: () => void; go: (path: string) => void }): void {
  const { url } = useLocation();
  useEffect(() => {
    const keys = new Keys();
    const hear = (event: KeyboardEvent) => {
      const wish: Wish | undefined = asksSearch(event)
        ? { kind: "search" }
        : isOurs(event)
          ? keys.read(event.key, event.timeStamp)
          : undefined;
      if (!wish) return;
      event.preventDefault();
      if (wish.kind === "help") wishes.help();
      if (wish.kind === "search") wishes.search();
      if (wish.kind === "go") wishes.go(wish.path);
      if (wish.kind === "step") step(wish.by);
    };
    document.addEventListener("keydown", hear);
    return () => document.removeEventListener("keydown", hear);
  }, [url]);
}
