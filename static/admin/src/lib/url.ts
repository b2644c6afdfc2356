import { useLocation } from "preact-iso";

/** Path of the page. */
export const BASE = "/admin";

/** Filters. An empty value is no filter. */
export type Filters = Record<string, string | undefined>;

/** The address of a page with these filters: `to("/push-services", { app: "shop" })` is `/admin/push-services?app=shop`. */
export function to(path: string, filters: Filters = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) if (value) query.set(name, value);
  const text = query.toString();
  return BASE + path + (text && `?${text}`);
}

/** The filters of the present address, and how to change some of them. */
export function useFilters() {
  const { path, query, route } = useLocation();
  const here = path.startsWith(BASE) ? path.slice(BASE.length) || "/" : "/";
  return {
    here,
    filters: query as Filters,
    /** Replaces the given members; `undefined` removes one; the others stay. */
    change: (changes: Filters, replace = false) => route(to(here, { ...query, ...changes }), replace),
    /** The address of another page about the same app. */
    link: (page: string, more: Filters = {}) => to(page, { app: query.app, ...more }),
    go: (page: string, more: Filters = {}) => route(to(page, { app: query.app, ...more })),
  };
}
