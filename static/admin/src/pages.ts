/** A page: its entry in the navigation, the letter after `g` that opens it, a description, and its guide below `/docs/guides/`. */
export interface Page {
  path: string;
  title: string;
  letter: string;
  about: string;
  guide: string;
  /** Other words that a search finds it by. */
  words?: string;
}

const OVERVIEW: Page = {
  path: "/",
  title: "Overview",
  letter: "o",
  about: "State, throughput, subscribers and recent campaigns.",
  guide: "operate/admin-page",
};

/** Groups of the navigation, in its order. */
export const GROUPS: readonly { title: string; pages: readonly Page[] }[] = [
  {
    title: "Send",
    pages: [
      {
        path: "/messages",
        title: "Messages",
        letter: "m",
        about: "Sent and scheduled messages with progress and results.",
        guide: "send",
      },
      {
        path: "/campaigns",
        title: "Campaigns",
        letter: "a",
        about: "Scheduled and recurring messages, A/B tests and results.",
        guide: "campaigns",
      },
      {
        path: "/calendar",
        title: "Calendar",
        letter: "r",
        about: "Campaigns and scheduled messages by day, with conflicts.",
        guide: "campaigns",
        words: "schedule",
      },
      {
        path: "/templates",
        title: "Templates",
        letter: "w",
        about: "Personal content, reused in messages and campaigns.",
        guide: "templates",
      },
    ],
  },
  {
    title: "Audience",
    pages: [
      {
        path: "/subscribers",
        title: "Subscribers",
        letter: "s",
        about: "Growth and losses of the audience, and the devices of a person.",
        guide: "browser",
        words: "users people diagnosis erase",
      },
      {
        path: "/segments",
        title: "Segments",
        letter: "t",
        about: "Subscriptions that match conditions, and their number.",
        guide: "segments",
      },
      {
        path: "/frequency",
        title: "Frequency",
        letter: "q",
        about: "Engagement, frequency caps and the runaway guard.",
        guide: "frequency",
        words: "limits sunset",
      },
    ],
  },
  {
    title: "Delivery",
    pages: [
      {
        path: "/deliveries",
        title: "Deliveries",
        letter: "d",
        about: "One message to one device: attempts and outcome.",
        guide: "delivery",
        words: "history why",
      },
      {
        path: "/push-services",
        title: "Push services",
        letter: "l",
        about: "State of each push service and of its apps.",
        guide: "operate/push-services",
        words: "lanes breaker hold",
      },
      {
        path: "/dead-letters",
        title: "Failed deliveries",
        letter: "x",
        about: "Failures by reason, with replay and discard.",
        guide: "operate/dead-letters",
        words: "dead letters errors",
      },
      {
        path: "/policies",
        title: "Policies",
        letter: "p",
        about: "Retries after failures, by tier, topic and subscription.",
        guide: "policies",
        words: "backoff",
      },
    ],
  },
  {
    title: "Connect",
    pages: [
      { path: "/webhooks", title: "Webhooks", letter: "h", about: "Events for your backend.", guide: "webhooks" },
      { path: "/transfers", title: "Import & export", letter: "i", about: "Files of subscriptions.", guide: "import" },
    ],
  },
  {
    title: "Admin",
    pages: [
      {
        path: "/settings",
        title: "Settings",
        letter: "e",
        about: "Apps, keys, prompt, quiet hours, measurement, team and audit log.",
        guide: "operate/keys",
      },
      {
        path: "/checks",
        title: "Checks",
        letter: "c",
        about: "Set-up of this server, as bellwire doctor reports it.",
        guide: "operate/watch",
      },
    ],
  },
];

/** Pages with an entry in the navigation: the overview, then the groups. */
export const PAGES: readonly Page[] = [OVERVIEW, ...GROUPS.flatMap(({ pages }) => pages)];

/** Parts of the settings, with words for their fields. */
export const SETTINGS: readonly { path: string; title: string; words: string }[] = [
  { path: "/settings", title: "Open actions", words: "to do attention" },
  { path: "/settings/apps", title: "Apps", words: "create app name slug origins icon flow rate delete" },
  { path: "/settings/keys", title: "Keys", words: "API keys scopes VAPID keys rotate identity keys user tokens" },
  { path: "/settings/prompt", title: "Prompt", words: "opt-in bell permission ask subscribe" },
  { path: "/settings/hours", title: "Quiet hours", words: "time zone off-peak windows" },
  {
    path: "/settings/measurement",
    title: "Measurement",
    words: "conversions attribution window link tags UTM parameters lift results",
  },
  { path: "/settings/team", title: "Team", words: "roles invite teammates members" },
  { path: "/settings/you", title: "Your account", words: "password passkeys sessions sign out e-mail two-factor" },
  { path: "/settings/audit", title: "Audit log", words: "history changes who" },
];

/** First run on an empty server. It has no entry in the navigation. */
export const FIRST_RUN: Page = {
  path: "/first-run",
  title: "First run",
  letter: "f",
  about: "Five steps to a notification in this browser.",
  guide: "browser",
};

/** All pages. */
export const ALL_PAGES: readonly Page[] = [...PAGES, FIRST_RUN];

/** Earlier addresses of pages, which links may still use. */
const FORMER: Record<string, string> = { lanes: "push-services" };

/** The page that an address belongs to. */
export function pageOf(here: string): Page | undefined {
  const [, first = "", ...rest] = here.split("/");
  const now = ["", FORMER[first] ?? first, ...rest].join("/");
  return ALL_PAGES.find(({ path }) => now === path || (path !== "/" && now.startsWith(`${path}/`)));
}
