/** Every page: its place in the navigation, the letter after `g` that leads to it, and the question that it answers first. */
export interface Page {
  path: string;
  title: string;
  letter: string;
  question: string;
}

export const PAGES: readonly Page[] = [
  { path: "/", title: "Overview", letter: "o", question: "Is everything all right?" },
  { path: "/messages", title: "Messages", letter: "m", question: "How is this one going?" },
  { path: "/campaigns", title: "Campaigns", letter: "a", question: "Who gets what when, and what worked?" },
  { path: "/templates", title: "Templates", letter: "w", question: "Personal content, reused in messages and campaigns." },
  { path: "/deliveries", title: "Deliveries", letter: "d", question: "Why did this person not get it?" },
  { path: "/lanes", title: "Lanes", letter: "l", question: "Which gateway is ill?" },
  { path: "/dead-letters", title: "Dead letters", letter: "x", question: "What went wrong, can I mend it?" },
  { path: "/subscribers", title: "Subscribers", letter: "s", question: "Is my base healthy; who is this?" },
  { path: "/segments", title: "Segments", letter: "t", question: "Whom do I mean, and how many are they?" },
  { path: "/frequency", title: "Frequency", letter: "q", question: "Is it too much for them?" },
  { path: "/policies", title: "Policies", letter: "p", question: "What happens when it fails?" },
  { path: "/webhooks", title: "Webhooks", letter: "h", question: "Events for your backend." },
  { path: "/transfers", title: "Import & export", letter: "i", question: "Files of subscriptions: import and export." },
  { path: "/settings", title: "Settings", letter: "e", question: "Who may do what, with which keys?" },
  { path: "/checks", title: "Checks", letter: "c", question: "Is it set up right?" },
];

/** First run on an empty server. It has no entry in the navigation. */
export const FIRST_RUN: Page = { path: "/first-run", title: "First run", letter: "f", question: "How do I begin?" };

/** Pages without an entry in the navigation. */
export const ALL_PAGES: readonly Page[] = [...PAGES, FIRST_RUN];

/** The page that an address belongs to. */
export function pageOf(here: string): Page | undefined {
  return ALL_PAGES.find(({ path }) => here === path || (path !== "/" && here.startsWith(`${path}/`)));
}
