import { useHere } from "../../shell/context";
import { ApiKeys } from "./api-keys";
import { ChooseApp } from "../../shell/choose-app";
import { IdentityKeys } from "./identity-keys";
import { VapidKeys } from "./vapid-keys";

export function Keys() {
  const { app, apps } = useHere();
  if (!app) return <ChooseApp apps={apps} what="Each app has its own keys." />;
  return (
    <>
      <VapidKeys app={app} />
      <ApiKeys app={app} />
      <IdentityKeys app={app} />
    </>
  );
}
