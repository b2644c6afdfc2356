import { expect, it } from "vitest";
import { recentOf } from "../src/lib/recent";

it("suggests each link and image once", () => {
  const contents = [
    {
      title: "New",
      url: "/sale",
      icon: "/i.png",
      actions: [
        { action: "a", title: "A", url: "/more" },
        { action: "b", title: "B" },
      ],
    },
    { title: "Old", url: "/sale", image: "/m.jpg", badge: null },
  ];
  expect(recentOf(contents)).toEqual({ url: ["/sale", "/more"], icon: ["/i.png"], image: ["/m.jpg"], badge: [] });
  expect(recentOf(Array.from({ length: 30 }, (_, n) => ({ title: "T", url: `/${n}` }))).url).toHaveLength(10);
});
