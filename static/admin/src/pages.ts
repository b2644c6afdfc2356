/** A page: its entry in the navigation, the letter after `g` that opens it, and the question that it answers first. */
export interface Page {
  path: string;
  title: string;
  letter: string;
  question: string;
}

const OVERVIEW: Page = { path: "/", title: "Overview", letter: "o", question: "Is everything working?" };

/** Groups of the navigation, in its order. */
export const GROUPS: readonly { title: string; pages: readonly Page[] }[] = [
  {
    title: "Send",
    pages: [
      { path: "/messages", title: "Messages", letter: "m", question: "How is this message performing?" },
      { path: "/campaigns", title: "Campaigns", letter: "a", question: "Who gets what when, and what worked?" },
      { path: "/templates", title: "Templates", letter: "w", question: "Personal content, reused in messages and campaigns." },
    ],
  },
  {
    title: "Audience",
    pages: [
      { path: "/subscribers", title: "Subscribers", letter: "s", question: "Is the audience healthy? Who is this person?" },
      { path: "/segments", title: "Segments", letter: "t", question: "Which subscribers, and how many?" },
      { path: "/frequency", title: "Frequency", letter: "q", question: "Do subscribers get too many messages?" },
    ],
  },
  {
    title: "Delivery",
    pages: [
      { path: "/deliveries", title: "Deliveries", letter: "d", question: "Why did this person not get it?" },
      { path: "/push-services", title: "Push services", letter: "l", question: "Which push service has a problem?" },
      { path: "/dead-letters", title: "Failed deliveries", letter: "x", question: "What failed, and can I fix it?" },
      { path: "/policies", title: "Policies", letter: "p", question: "What happens on failure?" },
    ],
  },
  {
    title: "Connect",
    pages: [
      { path: "/webhooks", title: "Webhooks", letter: "h", question: "Events for your backend." },
      { path: "/transfers", title: "Import & export", letter: "i", question: "Files of subscriptions: import and export." },
    ],
  },
  {
    title: "Admin",
    pages: [
      { path: "/settings", title: "Settings", letter: "e", question: "Who may do what, with which keys?" },
      { path: "/checks", title: "Checks", letter: "c", question: "Is the installation correct?" },
    ],
  },
];

/** Pages with an entry in the navigation: the overview, then the groups. */
export const PAGES: readonly Page[] = [OVERVIEW, ...GROUPS.flatMap(({ pages }) => pages)];

/** First run on an empty server. It has no entry in the navigation. */
export const FIRST_RUN: Page = { path: "/first-run", title: "First run", letter: "f", question: "How do I start?" };

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
