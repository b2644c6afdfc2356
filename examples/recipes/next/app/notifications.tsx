"use client";

import { init } from "@bellwire/web";
import { usePush } from "@bellwire/web/react";

const bellwire = init({ app: "shop", server: "https://push.example.com" }); // does nothing where the page is rendered on the server

export function Notifications() {
  const { status, problem, subscribe } = usePush(bellwire);
  return (
    <>
      <p id="status">{status?.state}</p>
      {status?.state === "unsubscribed" && <button id="subscribe" onClick={() => subscribe({ topics: ["news"] })}>Notify me</button>}
      <p role="alert">{problem}</p>
    </>
  );
}
