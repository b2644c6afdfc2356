import { expect, it } from "vitest";
import { may, takes } from "../src/lib/roles";

const SHOP = "app_shop";
const everywhere = { roles: [{ role: "operator" as const, app: null }] };
const onShop = { roles: [{ role: "admin" as const, app: SHOP }] };

it("role for all apps covers single ones", () => {
  expect([may(everywhere, "viewer", SHOP), may(everywhere, "operator", null), may(everywhere, "admin", SHOP)]).toEqual([
    true,
    true,
    false,
  ]);
  expect([may(onShop, "admin", SHOP), may(onShop, "viewer", "app_blog"), may(onShop, "viewer", null)]).toEqual([
    true,
    false,
    false,
  ]);
  expect([may(null, "viewer", SHOP), may(undefined, "viewer", null)]).toEqual([false, false]);
});

it("says which role could", () => {
  expect(takes("operator", null)).toBe("This requires the role operator for all apps.");
  expect(takes("sender", SHOP)).toBe("This requires the role sender on this app.");
});
